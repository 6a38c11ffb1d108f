package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// receipts of what was published later, in the order of the bodies.
func (l *later) receipts(bodies ...string) []core.Receipt {
	byBody := make(map[string]core.Receipt, len(l.at))
	for at, body := range l.at {
		byBody[body] = at
	}
	out := make([]core.Receipt, 0, len(bodies))
	for _, body := range bodies {
		out = append(out, byBody[body])
	}
	return out
}

// cancel cancels messages, and checks that each is cancelled for so many groups.
func (w *world) cancel(groups int, receipts ...core.Receipt) {
	w.t.Helper()
	results, err := w.Client.Cancel(w.t.Context(), queue, receipts...)
	w.ok(err)
	for _, r := range results {
		if r.Err != nil || len(r.Groups) != groups {
			w.t.Fatalf("%s is cancelled for %d groups, want %d: %v", r.Receipt, len(r.Groups), groups, r.Err)
		}
		for _, g := range r.Groups {
			if g.Outcome != client.OutcomeCancelled {
				w.t.Fatalf("%s is %s for %s", r.Receipt, g.Outcome, g.Group)
			}
		}
	}
	if len(results) != len(receipts) {
		w.t.Fatalf("%d results of %d receipts", len(results), len(receipts))
	}
}

// TestCancel_NoGroupGetsIt cancels every third of the messages that wait: neither the groups there are get them, with
// consumers or without, nor one that is made later, nor one that is sent back; cancelling again says the same, after
// they would have been due, too. They are neither listed nor counted.
func TestCancel_NoGroupGetsIt(t *testing.T) {
	bubble(t, Options{Stores: 3, Inputs: 2, Outputs: 2}, func(w *world) {
		w.group("g", nil)
		w.group("idle", nil)
		w.group("paused", func(g *core.GroupSpec) { g.Status = core.StatusDisabled })
		con := w.consumer("g")
		l := w.publishLater(120, func() {}, 20*time.Second, 5*time.Hour, 21*time.Second)
		w.group("latest", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		var cancelled, left []string
		for i, body := range numbers(0, 119) {
			switch {
			case i%9 < 3:
				cancelled = append(cancelled, body)
			case l.due[body].Before(time.Now().Add(time.Hour)):
				left = append(left, body)
			}
		}
		w.cancel(4, l.receipts(cancelled...)...)
		w.cancel(4, l.receipts(cancelled[:3]...)...)
		listed := 0
		for m, err := range w.Client.Admin().Delayed(w.t.Context(), queue, "") {
			w.ok(err)
			listed++
			if slices.Contains(cancelled, l.at[m.Receipt]) {
				w.t.Errorf("%s is listed", l.at[m.Receipt])
			}
		}
		if want := 120 - len(cancelled); listed != want {
			w.t.Errorf("%d are listed, want %d", listed, want)
		}
		w.eventually("what was cancelled is not counted", 3*time.Second, func() bool {
			d, err := w.Client.Admin().Depth(w.t.Context(), queue, "idle")
			return err == nil && int(d[0].Delayed+d[0].Ready) == listed && d[0].UnknownExtents == 0
		})
		life, err := w.Client.Admin().GetMessage(w.t.Context(), l.receipts(cancelled[0])[0])
		w.ok(err)
		for _, s := range life.Groups {
			if s.State != "cancelled" {
				w.t.Errorf("it is %q for group %s", s.State, s.Group)
			}
		}
		w.onlyThese(con, l, left)
		w.close(con)
		w.group("late", nil)
		_, err = w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "paused", Status: core.StatusEnabled}, "status")
		w.ok(err)
		_, err = w.Client.Admin().Seek(w.t.Context(), queue, "g", core.Start{Mode: core.StartEarliest})
		w.ok(err)
		for _, name := range []string{"late", "paused", "g", "idle"} {
			con := w.consumer(name)
			w.onlyThese(con, l, left)
			w.close(con)
		}
		w.cancel(5, l.receipts(cancelled...)...)
	})
}

// onlyThese takes all that is due to a group and acks it.
func (w *world) onlyThese(con *client.Consumer, l *later, want []string) {
	w.t.Helper()
	got := w.collect(con, len(want))
	for _, body := range want {
		if got[body] == 0 {
			w.t.Errorf("%s did not come", body)
		}
		delete(got, body)
	}
	for body := range got {
		w.t.Errorf("%s came, it was cancelled (due in %s)", body, time.Until(l.due[body]))
	}
}

// TestCancel_TooLate cancels a message that one of two groups has in flight, and that the other one has not been given:
// the first keeps it.
func TestCancel_TooLate(t *testing.T) {
	bubble(t, Options{Outputs: 2, Stores: 2}, func(w *world) {
		w.group("busy", func(g *core.GroupSpec) { g.LockTimeout = 20 * time.Second })
		w.group("idle", nil)
		con := w.consumer("busy")
		l := w.publishLater(2, func() {}, 2*time.Second)
		first, second := w.take(con, time.Minute), w.take(con, time.Minute)
		w.ok(second.Ack())
		synctest.Wait() // the ack is there
		time.Sleep(2 * time.Second)
		for range 2 {
			results, err := w.Client.Cancel(w.t.Context(), "", l.receipts("000000", "000001")...)
			w.ok(err)
			for _, r := range results {
				if r.Err != nil || len(r.Groups) != 2 || r.Groups[0].Outcome != client.OutcomeDelivered || r.Groups[1].Outcome != client.OutcomeCancelled {
					w.t.Fatalf("%+v", r)
				}
			}
		}
		if d := w.next(con, string(first.Body), 2); d != nil { // its lock ran out
			w.ok(d.Ack())
		}
		w.close(con)
		idle := w.consumer("idle")
		if d := w.take(idle, time.Minute); d != nil {
			w.t.Fatalf("%s came", d.Body)
		}
		w.close(idle)
	})
}

// TestCancel_Refused names what cannot be cancelled, and why.
func TestCancel_Refused(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: "/t/other"})
		w.ok(err)
		l := w.publishLater(2, func() {}, 0, time.Hour)
		log, timer := l.receipts("000000")[0], l.receipts("000001")[0]
		beyond := timer
		beyond.Seq += 10
		for _, x := range []struct {
			queue string
			at    core.Receipt
			want  core.Code
		}{
			{queue, log, core.CodeBadArgument},
			{"/t/other", timer, core.CodeNotFound},
			{"/t/none", timer, core.CodeNotFound},
			{queue, beyond, core.CodeNotFound},
			{queue, core.Receipt{Extent: timer.Extent}, core.CodeNotFound},
			{"", core.Receipt{Extent: core.ExtentID{ID: core.NewID(time.Now())}, Seq: 1}, core.CodeNotFound},
		} {
			results, err := w.Client.Cancel(w.t.Context(), x.queue, x.at)
			w.ok(err)
			if got := core.CodeOf(results[0].Err); got != x.want {
				w.t.Errorf("%s of %q: %v, want %s", x.at, x.queue, results[0].Err, x.want)
			}
		}
		w.cancel(1, timer)
		w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
		results, err := w.Client.Cancel(w.t.Context(), "", timer)
		w.ok(err)
		if got := core.CodeOf(results[0].Err); got != core.CodeNotFound {
			w.t.Errorf("of a deleted queue: %v", results[0].Err)
		}
	})
}

// TestCancel_EndUnknown cancels a message while its stores have just started and nobody says what is committed: they
// have it, so it is not told that it does not exist. Once that is known, it is cancelled.
func TestCancel_EndUnknown(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		w.group("g", nil)
		code := func(at core.Receipt) core.Code {
			w.t.Helper()
			results, err := w.Client.Cancel(w.t.Context(), queue, at)
			w.ok(err)
			return core.CodeOf(results[0].Err)
		}
		publish := func() core.Receipt {
			at := w.publishLater(1, func() {}, time.Hour).receipts("000000")[0]
			w.Crash(Controller, Input, Store(0), Store(1))
			w.Up(Store(0), Store(1))
			return at
		}
		at := publish()
		got := code(at)
		for try := 1; got == "" && try < 10; try++ { // a store heard what is committed, and wrote it, just before it was killed
			w.Up(Controller, Input)
			at = publish()
			got = code(at)
		}
		if got != core.CodeUnavailable {
			t.Errorf("cancelling what may be committed: %q, want %s", got, core.CodeUnavailable)
		}
		beyond := at
		beyond.Seq++
		if got := code(beyond); got != core.CodeNotFound {
			t.Errorf("cancelling what is beyond: %q, want %s", got, core.CodeNotFound)
		}
		w.Crash(Store(1))
		if got := code(beyond); got != core.CodeUnavailable {
			t.Errorf("cancelling what a store that is away may have: %q, want %s", got, core.CodeUnavailable)
		}
		w.Up(Store(1), Controller, Input)
		w.eventually("it is cancelled", time.Minute, func() bool {
			results, err := w.Client.Cancel(w.t.Context(), queue, at)
			return err == nil && results[0].Err == nil && results[0].Groups[0].Outcome == client.OutcomeCancelled
		})
	})
}

// TestCancel_OverKills cancels messages shortly before they are due, again and again until there is an answer, while
// output hosts and the controller's process are killed and shares move. A message that was answered as cancelled for a
// group never comes there; all others come.
func TestCancel_OverKills(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			underrace.One(t, seed == 0)
			bubble(t, Options{Stores: 3, Inputs: 1, Outputs: 3}, func(w *world) { cancelOverKills(w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func cancelOverKills(w *world, random *rand.Rand) {
	groups := []string{"a", "b"}
	for _, name := range groups {
		w.group(name, func(g *core.GroupSpec) { g.LockTimeout = 5 * time.Second })
	}
	var delays []time.Duration
	for i := range 30 {
		delays = append(delays, 2*time.Second+time.Duration(i)*time.Second)
	}
	l := w.publishLater(120, func() {}, delays...)
	var wg sync.WaitGroup
	var mu sync.Mutex
	said := make(map[string]map[string]client.CancelOutcome) // by body, by group
	for n := 0; n < 120; n += 2 {
		body := fmt.Sprintf("%06d", n)
		before := time.Duration(random.IntN(4000)-200) * time.Millisecond
		wg.Go(func() {
			time.Sleep(time.Until(l.due[body].Add(-before)))
			outcomes := cancelSurely(w, l.receipts(body)[0])
			mu.Lock()
			defer mu.Unlock()
			said[body] = outcomes
		})
	}
	seen := make(map[string]map[string]int)
	for _, name := range groups {
		seen[name] = make(map[string]int)
		con := w.consumer(name)
		defer w.close(con)
		wg.Go(func() {
			for d, err := range con.Deliveries(w.t.Context()) {
				if err != nil {
					return
				}
				mu.Lock()
				seen[name][string(d.Body)]++
				mu.Unlock()
				d.Ack()
				if time.Since(l.due["000119"]) > 25*time.Second {
					return
				}
			}
		})
	}
	for range 4 {
		time.Sleep(time.Duration(2+random.IntN(5)) * time.Second)
		victim := OutputOf(random.IntN(3))
		if random.IntN(3) == 0 {
			victim = Controller
		}
		w.Crash(victim)
		time.Sleep(time.Duration(random.IntN(4)) * time.Second)
		w.Up(victim)
	}
	time.Sleep(time.Until(l.due["000119"].Add(30 * time.Second)))
	w.publish("end")
	wg.Wait()
	judgeCancels(w, groups, said, seen)
}

// cancelSurely cancels until there is an answer.
func cancelSurely(w *world, at core.Receipt) map[string]client.CancelOutcome {
	for {
		results, err := w.Client.Cancel(w.t.Context(), queue, at)
		if err == nil && results[0].Err == nil {
			out := make(map[string]client.CancelOutcome)
			for _, g := range results[0].Groups {
				out[g.Group] = g.Outcome
			}
			return out
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func judgeCancels(w *world, groups []string, said map[string]map[string]client.CancelOutcome, seen map[string]map[string]int) {
	w.t.Helper()
	count := make(map[client.CancelOutcome]int)
	for _, body := range numbers(0, 119) {
		for _, name := range groups {
			outcome, times := said[body][name], seen[name][body]
			count[outcome]++
			if outcome == client.OutcomeCancelled && times > 0 || outcome != client.OutcomeCancelled && times == 0 {
				w.t.Errorf("%s is %q for group %s, which got it %d times", body, outcome, name, times)
			}
		}
	}
	if count[client.OutcomeCancelled] < 60 {
		w.t.Errorf("too few were cancelled: %v", count)
	}
	w.t.Logf("%v", count)
}
