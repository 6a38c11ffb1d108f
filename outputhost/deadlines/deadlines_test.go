package deadlines

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlines_ComeWhenTheyAreDue sets, moves and takes back deadlines while it runs.
func TestDeadlines_ComeWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New[string]()
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		after := func(s time.Duration) time.Time { return start.Add(s * time.Second) }
		type event struct {
			item string
			at   time.Duration
		}
		var came []event
		d.Set("late", after(10), true)
		go d.Run(ctx, time.Now, func(item string) { came = append(came, event{item, time.Since(start)}) })
		synctest.Wait()
		d.Set("soon", after(1), true)
		d.Set("moved", after(2), true)
		d.Set("moved", after(5), true)
		d.Set("never", after(3), true)
		d.Set("never", time.Time{}, false)
		d.Set("none", time.Time{}, false)
		time.Sleep(7 * time.Second)
		d.Set("again", after(8), true)
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
		want := []event{{"soon", time.Second}, {"moved", 5 * time.Second}, {"again", 8 * time.Second}, {"late", 10 * time.Second}}
		if !slices.Equal(came, want) {
			t.Errorf("came %v, want %v", came, want)
		}
	})
}

// TestDeadlines_UnchangedWakesNobody: a deadline that stays as it is does not wake the goroutine that waits for it.
func TestDeadlines_UnchangedWakesNobody(t *testing.T) {
	d := New[string]()
	at := time.Now().Add(time.Hour)
	d.Set("first", at, true)
	<-d.wake
	d.Set("first", at, true)
	select {
	case <-d.wake:
		t.Error("it is woken for a deadline that is the same")
	default:
	}
	d.Set("first", at.Add(-time.Second), true)
	select {
	case <-d.wake:
	default:
		t.Error("it is not woken for an earlier one")
	}
}
