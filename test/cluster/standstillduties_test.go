package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// reader consumes and acks until it is stopped, and keeps what came.
type reader struct {
	mu     sync.Mutex
	bodies []string // in the order in which they came
	at     map[core.Receipt]int
	stop   func()
}

func (w *world) reader(group string) *reader {
	w.t.Helper()
	r := &reader{at: make(map[core.Receipt]int)}
	ctx, cancel := context.WithCancel(w.t.Context())
	con := w.consumer(group)
	var wg sync.WaitGroup
	wg.Go(func() {
		for d, err := range con.Deliveries(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					w.t.Errorf("consume: %v", err)
				}
				return
			}
			r.mu.Lock()
			r.bodies = append(r.bodies, string(d.Body))
			if r.at[d.Receipt]++; r.at[d.Receipt] > 1 {
				w.t.Errorf("%s, %s, came %d times, at %s as attempt %d", d.Body, d.Receipt, r.at[d.Receipt], time.Now().Format("04:05.000"), d.Attempt)
			}
			r.mu.Unlock()
			if err := d.Ack(); err != nil {
				w.t.Errorf("ack: %v", err)
			}
		}
	})
	r.stop = func() {
		sleep(time.Second)
		cancel()
		wg.Wait()
		w.close(con)
	}
	return r
}

// got are the different bodies, in the order in which they came first.
func (r *reader) got() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[string]bool)
	for _, b := range r.bodies {
		if !known[b] {
			known[b], out = true, append(out, b)
		}
	}
	return out
}

// hinted reports whether metadata have a hint of an extent.
func (w *world) hinted(h metadata.Hint, e core.Extent) bool {
	_, err := w.Meta.Get(w.t.Context(), metadata.Work, metadata.HintKey(h, e.ID), metadata.Serial)
	return err == nil
}

// stillSeal rolls an extent while messages are published one after another.
func stillSeal(w *world, s *standstill) (stopped bool) {
	w.group("g", nil)
	id := w.queueID(queue)
	r := w.reader("g")
	p, err := w.Client.Publisher(w.t.Context(), queue, client.PublishTimeout(5*time.Minute))
	w.ok(err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var want []string
	wg.Go(func() {
		for !closed(stop) {
			body := fmt.Sprintf("%06d", len(want))
			if _, err := p.Publish(w.t.Context(), client.Message{Body: []byte(body)}); err != nil {
				w.t.Errorf("publish %s: %v", body, err)
			}
			want = append(want, body)
			sleep(100 * time.Millisecond)
		}
	})
	sleep(time.Second)
	before := w.created()
	s.arm(w.responsible(id))
	stopped = s.until(func() bool {
		for _, e := range before {
			if w.hasEnd(e) && !w.hinted(metadata.HintOpen, e) && len(w.created()) > len(before) {
				return true
			}
		}
		return false
	}, func() {})
	sleep(20 * time.Second)
	close(stop)
	wg.Wait()
	w.eventually("all came", 5*time.Minute, func() bool { return len(r.got()) >= len(want) })
	sleep(30 * time.Second)
	r.stop()
	got := r.got()
	if before[0].Chain == 0 {
		slices.Sort(got)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("got %d messages %v, want %d in their order", len(got), got, len(want))
	}
	w.ok(p.Close(w.t.Context()))
	return stopped
}

const stillLetters = 20

func stillMerge(w *world, s *standstill) (stopped bool) { return stillMergeOf(w, s, nil) }

func stillMergeSome(w *world, s *standstill) (stopped bool) {
	return stillMergeOf(w, s, []string{"000003", "000004", "000017"})
}

// stillMergeOf merges dead letters, all or some.
func stillMergeOf(w *world, s *standstill, some []string) (stopped bool) {
	all := numbers(1, stillLetters)
	w.buried("g", all...)
	want, selection := all, core.Selection{}
	if some != nil {
		want, selection = some, core.Selection{IDs: w.idsOf("g", some...)}
	}
	sleep(10 * time.Second)
	r := w.reader("g")
	admin := w.Client.Admin()
	s.arm(w.responsible(w.queueID(core.DLQPath(queue, "g"))))
	var o client.Operation
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { o, err = admin.MergeSelected(w.t.Context(), queue, "g", selection, 0) })
	ended := func() bool {
		all, err := admin.ListOperations(w.t.Context(), true)
		return err == nil && len(all) == 1 && all[0].Ended()
	}
	stopped = s.until(func() bool { return ended() && len(r.got()) == len(want) }, func() {})
	wg.Wait()
	if err != nil { // its outcome is not known to who asked: it is there, or is asked for again
		w.t.Logf("merge: %v", err)
		list, lerr := admin.ListOperations(w.t.Context(), true)
		w.ok(lerr)
		if len(list) == 0 {
			o, err = admin.MergeSelected(w.t.Context(), queue, "g", selection, 0)
			w.ok(err)
		} else {
			o = list[0]
		}
	}
	if o = w.ended(o.ID); o.State != "done" || some == nil && o.Done != stillLetters || some != nil && int(o.Done) != len(some) {
		w.t.Errorf("the merge is %+v", o)
	}
	w.eventually("all came", 5*time.Minute, func() bool { return len(r.got()) >= len(want) })
	sleep(30 * time.Second)
	r.stop()
	got := r.got()
	slices.Sort(got)
	if !slices.Equal(got, want) || len(r.at) != len(want) {
		w.t.Errorf("got %v of %d receipts, want %v once each", got, len(r.at), want)
	}
	if n := w.letters("g"); n != stillLetters-len(want) {
		w.t.Errorf("%d dead letters are left, want %d", n, stillLetters-len(want))
	}
	list, err := admin.ListOperations(w.t.Context(), true)
	w.ok(err)
	if len(list) != 1 {
		w.t.Errorf("there are %d operations, want one", len(list))
	}
	return stopped
}

// stillRetire has an extent that two groups have consumed, and one that one of them has. While the controller stands
// still a third group comes.
func stillRetire(w *world, s *standstill) (stopped bool) {
	w.keep(2*time.Minute, 5*time.Hour)
	w.group("fast", nil)
	w.group("slow", nil)
	old, kept := numbers(1, 12), numbers(13, 24)
	w.publish(old...)
	sleep(75 * time.Second) // sealed as idle
	consume := func(group string, n int) {
		con := w.consumer(group)
		if got := w.collect(con, n); len(got) != n {
			w.t.Fatalf("%s got %d messages, want %d", group, len(got), n)
		}
		w.close(con)
	}
	consume("slow", len(old))
	gone := w.created()
	w.publish(kept...)
	consume("fast", len(old)+len(kept))
	sleep(90 * time.Second)
	s.arm(w.responsible(w.queueID(queue)))
	away := func() bool {
		for _, e := range gone {
			row, _, err := metadata.Read[metadata.SealRecord](w.t.Context(), w.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
			if err != nil || row.State != core.ExtentRetired || w.hinted(metadata.HintLive, e) || slices.ContainsFunc(w.created(), e.Equal) {
				return false
			}
		}
		return true
	}
	whole := make(map[string]bool) // late groups, and whether they must get all
	comes := func(group string) {
		w.group(group, nil)
		whole[group] = true
		for _, e := range gone {
			row, _, err := metadata.Read[metadata.SealRecord](w.t.Context(), w.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
			w.ok(err)
			whole[group] = whole[group] && row.State == core.ExtentSealed
		}
	}
	stopped = s.until(away, func() {
		comes("late")
		sleep(50 * time.Second) // the others have retired the extents, or undone the mark: the clock of the one that stands still is not known
		comes("later")
	})
	for group, all := range whole {
		w.lateGets(group, all, old, kept)
	}
	w.eventually("it is removed", 20*time.Minute, away)
	sleep(2 * time.Minute) // all inventories were compared
	if !away() {
		w.t.Error("what was retired came back")
	}
	for _, e := range gone {
		for _, id := range e.Replicas {
			if _, err := w.hosts[id].process.log.State(e.ID); err == nil {
				w.t.Errorf("%s has the retired extent %s", id, e.ID)
			}
		}
	}
	con := w.consumer("slow")
	w.all(w.collect(con, len(kept)), kept, true)
	w.close(con)
	return stopped
}

// lateGets sees to it that a group which came while an extent was being retired has got all of it, or nothing if it was
// marked when the group came, and all of the others.
func (w *world) lateGets(group string, whole bool, old, kept []string) {
	w.t.Helper()
	con := w.consumer(group)
	got := make(map[string]int)
	for d := w.take(con, 2*time.Minute); d != nil; d = w.take(con, 30*time.Second) {
		got[string(d.Body)]++
		w.ok(d.Ack())
	}
	w.close(con)
	count := func(some []string) (n int) {
		for _, b := range some {
			n += got[b]
		}
		return n
	}
	if count(kept) != len(kept) || count(old) != len(old) && (whole || count(old) > 0) {
		w.t.Errorf("group %s got %d of %d messages that are kept, and %d of %d others; must it get all: %t", group, count(kept), len(kept), count(old), len(old), whole)
	}
}
