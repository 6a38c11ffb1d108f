package cluster

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// later is what was published with a delay: where it is, and when it is due.
type later struct {
	mu   sync.Mutex
	at   map[core.Receipt]string    // → its body
	due  map[string]time.Time       // by body
	kind map[string]core.ExtentKind // it has to be in, by body
}

// publishLater publishes count messages whose delays go round, and waits for all acks; half is called in the middle.
func (w *world) publishLater(count int, half func(), delays ...time.Duration) *later {
	w.t.Helper()
	l := &later{at: make(map[core.Receipt]string), due: make(map[string]time.Time), kind: make(map[string]core.ExtentKind)}
	p, err := w.Client.Publisher(w.t.Context(), queue)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range count {
		body, delay := fmt.Sprintf("%06d", i), delays[i%len(delays)]
		m := client.Message{Body: []byte(body), Delay: delay}
		due := time.Now().Add(delay)
		if i%3 == 0 && delay > 0 {
			m.Delay, m.DeliverAt = 0, due
		}
		l.due[body], l.kind[body] = due, core.KindTimer
		if delay == 0 {
			l.kind[body] = core.KindLog
		}
		if err := p.PublishAsync(w.t.Context(), m, func(r client.Receipt, err error) {
			if err != nil {
				w.t.Errorf("publish %s: %v", body, err)
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if other, twice := l.at[r.Receipt]; twice {
				w.t.Errorf("%s and %s are both at %s", body, other, r.Receipt)
			}
			l.at[r.Receipt] = body
		}); err != nil {
			w.t.Fatal(err)
		}
		if i%20 == 19 {
			time.Sleep(time.Millisecond)
		}
		if i == count/2 {
			half()
		}
	}
	if err := p.Close(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return l
}

// TestDelays_StoredByHorizonAndListed publishes messages for now and for later, side by side, to an AP and a CP queue, while a store dies: each is where
// its receipt says, in an extent of its kind and horizon, and all that are not due yet are listed, with their times.
func TestDelays_StoredByHorizonAndListed(t *testing.T) {
	for _, consistency := range []core.Consistency{core.AP, core.CP} {
		t.Run(string(consistency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := Start(t, Options{Stores: 4, Inputs: 2, Replicas: 3})
				defer c.Close()
				w := &world{c, t}
				admin := c.Client.Admin()
				if _, err := admin.CreateQueue(t.Context(), core.QueueSpec{Path: queue, Consistency: consistency}); err != nil {
					t.Fatal(err)
				}
				l := w.publishLater(600, func() { c.Crash(Store(1)) }, 0, 10*time.Minute, 5*time.Hour, 0, 3*24*time.Hour, 200*24*time.Hour, 10*time.Minute)
				extents := make(map[core.ExtentID]client.ExtentInfo)
				for e, err := range admin.ListExtents(t.Context(), queue) {
					if err != nil {
						t.Fatal(err)
					}
					extents[e.Extent] = e
				}
				for at, body := range l.at {
					e := extents[at.Extent]
					ahead := time.Until(l.due[body])
					if e.Kind != l.kind[body] || e.Kind == core.KindTimer && (ahead > e.Horizon.Reach() || ahead < e.Horizon.Reach()/31) {
						t.Errorf("%s, due in %s, is in a %s extent of horizon %q", body, ahead, e.Kind, e.Horizon)
					}
				}
				waiting, want := 0, 0
				for _, kind := range l.kind {
					if kind == core.KindTimer {
						want++
					}
				}
				for m, err := range admin.Timers(t.Context(), queue) {
					if err != nil {
						t.Fatal(err)
					}
					waiting++
					body, ok := l.at[m.Receipt]
					if got := m.Message.DeliverAt; !ok || l.kind[body] != core.KindTimer || got.Sub(l.due[body]).Abs() > time.Second || len(m.Message.Body) != 0 {
						t.Errorf("listed at %s: due %s, want %q at %s", m.Receipt, got, body, l.due[body])
					}
				}
				if waiting != want || len(l.at) != 600 {
					t.Errorf("%d of %d messages are listed as not due, want %d of 600", waiting, len(l.at), want)
				}
			})
		})
	}
}
