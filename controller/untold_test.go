package controller

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// logText is what a log says. Safe for concurrent use.
type logText struct {
	mu    sync.Mutex
	bytes []byte
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = append(l.bytes, b...)
	return len(b), nil
}

func (l *logText) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.bytes)
}

func TestUntold(t *testing.T) {
	u, now := newUntold(), time.Now()
	u.most = 2
	x := replica{store: "s0"}
	for i, step := range []struct {
		x     replica
		why   string
		after time.Duration
		times int
	}{
		{x, "away", 0, 1}, {x, "away", 2 * time.Second, 0}, {x, "another disk", 0, 1}, {x, "another disk", 30 * time.Second, 0},
		{replica{store: "s1"}, "another disk", 0, 1}, {x, "another disk", 30 * time.Second, 2}, {x, "another disk", time.Second, 0},
		{replica{store: "s2"}, "away", 0, 1}, // all are forgotten
		{x, "another disk", 0, 1},
		{replica{store: "s3"}, "away", 2*tellUntold + 1, 1}, {x, "another disk", 0, 1},
	} {
		now = now.Add(step.after)
		if times := u.failed(step.x, step.why, now); times != step.times {
			t.Errorf("step %d: %d times, want %d", i, times, step.times)
		}
		if len(u.mu.of) > u.most {
			t.Errorf("step %d: %d are remembered", i, len(u.mu.of))
		}
	}
	u.told(x)
	if times := u.failed(x, "another disk", now); times != 1 {
		t.Errorf("after it was told: %d times", times)
	}
}

// TestTell_OtherDiskIsToldOfNowAndThen: a holder has another disk and nobody decides what becomes of the extent: the
// log is not filled with it.
func TestTell_OtherDiskIsToldOfNowAndThen(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		e, others := r.sealedAloneOf(5, 5)
		for _, s := range others {
			s.cut(e, 3)
			r.wake(s)
		}
		r.sleep(10 * time.Minute)
		log := r.log.text()
		told := strings.Count(log, "a replica was not told its end")
		if told < 1 || told > 3*15 {
			t.Errorf("the log says %d times that a replica was not told its end, in ten minutes, of three", told)
		}
		// If the inventory of the new disk came first, the holder is quarantined: then nobody is left to be told, and repair
		// alone goes on.
		if again := strings.Count(log, "the copies of extents stay as they are for now"); strings.Contains(log, "a replica is damaged, or short") && again < 10 {
			t.Errorf("repair said %d times in ten minutes that it cannot go on", again)
		} else if !strings.Contains(log, "a replica is damaged, or short") && (told < 10 || !strings.Contains(log, "times=2")) {
			t.Errorf("the log says %d times that a replica was not told its end, or does not say how often", told)
		}
		if row := r.row(e); row.LostFrom != 0 || row.State != core.ExtentSealed {
			t.Errorf("row %+v", row)
		}
	})
}
