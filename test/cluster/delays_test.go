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

// TestDelays_StoredByHorizonAndListed publishes messages for now and for later, side by side, to an AP and a CP queue,
// while a store dies: each is where its receipt says, in an extent of its kind and horizon, and all that are not due
// yet are listed, with their times.
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
				for m, err := range admin.Delayed(t.Context(), queue, "") {
					if err != nil {
						t.Fatal(err)
					}
					waiting++
					body, ok := l.at[m.Receipt]
					if got := m.Due; !ok || l.kind[body] != core.KindTimer || got.Sub(l.due[body]).Abs() > time.Second || len(m.Message.Body) != 0 {
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

// TestDelays_ListedAsTheyAreDue lists more messages than a page has, after some of them were due, with a store that
// lags behind: each once, in each extent as they are due.
func TestDelays_ListedAsTheyAreDue(t *testing.T) {
	bubble(t, Options{Stores: 2, Inputs: 2}, func(w *world) {
		var delays []time.Duration
		for i := range 97 {
			delays = append(delays, time.Duration(1+(i*37)%97)*time.Minute)
		}
		l := w.publishLater(2300, func() {}, delays...)
		time.Sleep(10*time.Minute + 30*time.Second)
		w.Crash(Store(0))
		w.Up(Store(0))
		want := 0
		for _, due := range l.due {
			if due.After(time.Now()) {
				want++
			}
		}
		seen, last := make(map[core.Receipt]bool), make(map[core.ExtentID]time.Time)
		for m, err := range w.Client.Admin().Delayed(w.t.Context(), queue, "") {
			w.ok(err)
			due := m.Due
			if seen[m.Receipt] || due.Before(last[m.Receipt.Extent]) || !due.After(time.Now()) || l.due[l.at[m.Receipt]].Sub(due).Abs() > time.Second {
				w.t.Fatalf("%s is due %s, after one that is due %s; listed before: %v", m.Receipt, due, last[m.Receipt.Extent], seen[m.Receipt])
			}
			seen[m.Receipt], last[m.Receipt.Extent] = true, due
		}
		if len(seen) != want || want < 1800 {
			w.t.Errorf("%d are listed, want %d", len(seen), want)
		}
	})
}

// TestDelays_DueCountsAsReady counts the messages of groups that nobody consumes, or not any more: those that are due
// are ready, the others delayed.
func TestDelays_DueCountsAsReady(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2}, func(w *world) {
		w.group("g", nil)
		w.group("idle", nil)
		w.publishLater(60, func() {}, 5*time.Second, 2*time.Minute, 20*time.Second)
		wants := func(group, counted string) {
			w.t.Helper()
			w.eventually(group+" has "+counted, 3*time.Second, func() bool { return counts(w.depth(group)) == counted })
		}
		wants("idle", "0 0 60 0 0")
		time.Sleep(10 * time.Second)
		wants("idle", "20 0 40 0 0")
		con := w.consumer("g")
		for range 5 {
			w.ok(w.take(con, time.Minute).Ack())
		}
		w.close(con)
		wants("g", "15 0 40 0 0")
		time.Sleep(20 * time.Second)
		wants("g", "35 0 20 0 0")
		wants("idle", "40 0 20 0 0")
		time.Sleep(90 * time.Second)
		wants("idle", "60 0 0 0 0")
	})
}

// whenDue takes n messages of a group, all of which were published with l, acks them, and checks that none is early,
// and none later than late, 0 for any. It answers them in the order in which they came first.
func (w *world) whenDue(con *client.Consumer, l *later, n int, late, patience time.Duration) (order []string) {
	w.t.Helper()
	seen := make(map[string]bool)
	for len(seen) < n {
		d := w.take(con, patience)
		if d == nil {
			w.t.Fatalf("%d messages came, want %d", len(seen), n)
		}
		body := string(d.Body)
		due, ok := l.due[body]
		by := time.Since(due)
		if !ok || by < -time.Millisecond || late > 0 && l.kind[body] == core.KindTimer && by > late {
			w.t.Fatalf("%s came %s after it was due (published: %v)", body, by, ok)
		}
		if !seen[body] {
			seen[body] = true
			order = append(order, body)
		}
		d.Ack() // its connection may be lost
	}
	return order
}

// TestDelays_ComeWhenTheyAreDue publishes messages for now and for later to an AP and a CP queue: none comes early,
// none late, the ones for now of a CP queue in their order. A group that is made while they wait gets them by where it
// starts.
func TestDelays_ComeWhenTheyAreDue(t *testing.T) {
	for _, consistency := range []core.Consistency{core.AP, core.CP} {
		t.Run(string(consistency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := Start(t, Options{Stores: 3, Inputs: 2, Outputs: 2})
				defer c.Close()
				w := &world{c, t}
				_, err := c.Client.Admin().CreateQueue(t.Context(), core.QueueSpec{Path: queue, Consistency: consistency})
				w.ok(err)
				w.group("g", nil)
				con := w.consumer("g")
				l := w.publishLater(300, func() {}, 0, 2*time.Second, 0, 5*time.Second, 30*time.Second, 3*time.Second)
				w.group("all", nil)
				w.group("new", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
				w.eventually("what waits is counted", 2*time.Second, func() bool {
					depth, err := c.Client.Admin().Depth(t.Context(), queue, "g")
					return err == nil && depth[0].Delayed == 200
				})
				order := w.whenDue(con, l, 250, 100*time.Millisecond, 30*time.Second)
				last := ""
				for _, body := range order {
					if consistency == core.CP && l.kind[body] == core.KindLog && body < last {
						t.Errorf("%s came after %s", body, last)
					}
					if l.kind[body] == core.KindLog {
						last = body
					}
				}
				if d := w.take(con, 5*time.Second); d != nil {
					t.Errorf("%s came, the rest is due in half a minute", d.Body)
				}
				w.close(con)
				all, fresh := w.consumer("all"), w.consumer("new")
				w.whenDue(all, l, 250, 0, 30*time.Second)
				_, err = w.publisher().Publish(t.Context(), client.Message{Body: []byte("for the new group"), Delay: time.Second})
				w.ok(err)
				if d := w.next(fresh, "for the new group", 1); d != nil {
					w.ok(d.Ack())
				}
				w.ok(w.next(all, "for the new group", 1).Ack())
				w.whenDue(all, l, 50, 100*time.Millisecond, 30*time.Second)
				if d := w.take(fresh, time.Second); d != nil {
					t.Errorf("%s came to a group that was made after it was published", d.Body)
				}
				w.close(all)
				w.close(fresh)
			})
		})
	}
}

// TestDelays_SurviveTheirHosts crashes an input host, a store and an output host while messages are published for
// later, and everything before they are due: what was acknowledged comes, and not before its time.
func TestDelays_SurviveTheirHosts(t *testing.T) {
	bubble(t, Options{Stores: 4, Inputs: 2, Outputs: 2, Replicas: 3}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 5 * time.Second })
		l := w.publishLater(400, func() { w.Crash(InputOf(0), Store(1), OutputOf(1)) }, 0, 30*time.Second, 40*time.Second, 50*time.Second)
		w.Up(InputOf(0), Store(1), OutputOf(1))
		w.Crash(w.All()...)
		w.Up(w.All()...)
		con := w.consumer("g")
		w.whenDue(con, l, 400, 0, 2*time.Minute)
		w.close(con)
	})
}
