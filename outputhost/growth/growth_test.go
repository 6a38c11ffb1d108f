package growth

import (
	"math"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestMeter(t *testing.T) {
	var m Meter
	now, total := start, uint64(1000)
	expect := func(what string, perSecond, within float64) {
		t.Helper()
		if got := m.PerSecond(total, now); math.Abs(got-perSecond) > within {
			t.Errorf("%s: %g per second, want %g", what, got, perSecond)
		}
	}
	expect("nothing seen", 0, 0)
	m.Note(total, now)
	expect("just begun", 0, 0)
	total += 70
	now = now.Add(300 * time.Millisecond)
	expect("70 at once", 70, 0)
	now = now.Add(1700 * time.Millisecond)
	expect("70 in two seconds", 35, 0)
	m = Meter{}
	m.Note(total, now)
	run := func(d time.Duration, perTick uint64) {
		for range d / (100 * time.Millisecond) {
			now = now.Add(100 * time.Millisecond)
			total += perTick
			m.Note(total, now)
		}
	}
	run(time.Second, 5)
	expect("after a second", 50, 0.01)
	run(time.Minute, 5)
	expect("steady", 50, 0.01)
	run(12*time.Second, 20)
	expect("faster for longer than the window", 200, 0.01)
	run(12*time.Second, 0)
	expect("stopped", 0, 0)
	run(time.Second, 30)
	expect("a second after it went on", 300, 30)
	run(3*time.Second, 30)
	expect("three seconds later", 300, 30)
	run(5*time.Second, 0)
	expect("stopped for five seconds", 133, 15)
	run(12*time.Second, 0)
	now = now.Add(time.Hour)
	total += 1e6
	expect("not looked at for an hour", 0, 0)
	m.Note(total, now)
	total = 3
	now = now.Add(2 * time.Second)
	expect("a counter that went back", 0, 0)
}
