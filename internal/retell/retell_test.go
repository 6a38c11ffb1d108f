package retell

import (
	"context"
	"sync"
	"testing"
	"time"
)

// other is a host that hears, or does not.
type other struct {
	mu    sync.Mutex
	deaf  bool
	tries map[int]int
	heard map[int]int
	when  func(what int) // called while one is told
}

func (o *other) tell(_ context.Context, what int) bool {
	o.mu.Lock()
	o.tries[what]++
	deaf, when := o.deaf, o.when
	if !deaf {
		o.heard[what]++
	}
	o.mu.Unlock()
	if when != nil {
		when(what)
	}
	return !deaf
}

func (o *other) set(deaf bool, when func(int)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deaf, o.when = deaf, when
}

func (o *other) want(t *testing.T, what, tries, heard int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tries[what] != tries || o.heard[what] != heard {
		t.Errorf("%d was told %d times and heard %d times, want %d and %d", what, o.tries[what], o.heard[what], tries, heard)
	}
}

// telling runs f with a teller and a clock.
func telling(f func(x *Teller[int], o *other, later func(rounds int))) {
	now := time.UnixMilli(0)
	o := &other{deaf: true, tries: make(map[int]int), heard: make(map[int]int)}
	x := New(o.tell, time.Minute, func() time.Time { return now })
	f(x, o, func(rounds int) {
		for range rounds {
			now = now.Add(Every)
			x.Round(context.Background())
		}
	})
}

func TestTeller_UntilHeard(t *testing.T) {
	telling(func(x *Teller[int], o *other, later func(int)) {
		x.Add(1)
		later(3)
		o.want(t, 1, 3, 0)
		o.set(false, nil)
		later(5)
		o.want(t, 1, 4, 1)
	})
}

func TestTeller_GivesUp(t *testing.T) {
	telling(func(x *Teller[int], o *other, later func(int)) {
		x.Add(1)
		later(6)
		x.Add(1) // a change that is newer
		later(24)
		o.want(t, 1, 18, 0)
		o.set(false, nil)
		later(12)
		o.want(t, 1, 18, 0)
	})
}

// TestTeller_AddedWhileTold: a change that comes while an earlier one is told is told by itself.
func TestTeller_AddedWhileTold(t *testing.T) {
	telling(func(x *Teller[int], o *other, later func(int)) {
		var once sync.Once
		o.set(false, func(what int) { once.Do(func() { x.Add(what) }) })
		x.Add(1)
		later(5)
		o.want(t, 1, 2, 2)
	})
}

func TestTeller_Bound(t *testing.T) {
	telling(func(x *Teller[int], o *other, later func(int)) {
		for i := range most + 1 {
			x.Add(i)
		}
		x.Add(0)
		o.set(false, nil)
		later(2)
		o.want(t, 0, 1, 1)
		o.want(t, most-1, 1, 1)
		o.want(t, most, 0, 0)
	})
}
