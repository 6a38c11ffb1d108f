package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
)

// sealsOf are the seal rows of the queue's extents.
func (w *world) sealsOf() (out []metadata.SealRecord) {
	w.t.Helper()
	for e, err := range w.Client.Admin().ListExtents(w.t.Context(), queue) {
		w.ok(err)
		if s, _, err := metadata.Read[metadata.SealRecord](w.t.Context(), w.Meta, metadata.Seals, metadata.SealKey(e.Extent), metadata.Serial); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// thinOnes counts the extents that take messages, or are not sealed yet, on fewer than three stores.
func (w *world) thinOnes() (n int) {
	w.t.Helper()
	for e, err := range w.Client.Admin().ListExtents(w.t.Context(), queue) {
		w.ok(err)
		if !e.State.HasEnd() && len(e.Replicas) < 3 {
			n++
		}
	}
	return n
}

// separated loses all packets between some hosts and the others.
func (w *world) separated(side ...core.HostID) (heal func()) {
	var paths []path
	for _, in := range side {
		for _, out := range w.All() {
			if a, b := string(in)+":1", string(out)+":1"; !slices.Contains(side, out) {
				paths = append(paths, path{a, b}, path{b, a})
			}
		}
	}
	return w.net.drop(paths...)
}

// loseOnlyHolder waits until the third store alone has the end, at l, and for as long as it may be told it. Then what
// is on its way to the others is lost, and the third loses its disk. It answers what publishers were told of n messages
// meanwhile.
func (w *world) loseOnlyHolder(l core.Seq, told time.Duration, p *client.Publisher, sent <-chan error, n int) (outcomes []error) {
	w.t.Helper()
	w.eventually("the third store alone has the end", time.Minute, func() bool {
		return slices.ContainsFunc(w.sealsOf(), func(s metadata.SealRecord) bool {
			return s.State == core.ExtentSealed && s.L == l && slices.Equal(s.Holders, []core.HostID{Store(2)})
		})
	})
	sleep(told)
	for _, id := range []core.HostID{Store(0), Store(1)} {
		w.Cut(InputOf(0), id)
	}
	w.eachDown([]core.HostID{Store(2)}, func(h *host) { h.crash((*memdisk.Disk).Wipe) })
	for range n {
		outcomes = append(outcomes, <-sent)
	}
	p.Close(w.t.Context())
	w.Up(Store(2))
	return outcomes
}

// nothingLeft waits until the group has nothing left by the servers' count.
func (w *world) nothingLeft(group string) {
	w.t.Helper()
	w.eventually("nothing is left", time.Minute, func() bool {
		d := w.depth(group)
		return d.Ready+d.InFlight+d.Delayed == 0 && d.UnknownExtents == 0
	})
}

// TestLost_TailThatNobodyWasToldOf: two stores are cut off while the third is sent more, which becomes the end of the
// extent; then the third loses its disk. All that was acknowledged is delivered, nothing waits for ever, and the queue
// goes on.
func TestLost_TailThatNobodyWasToldOf(t *testing.T) {
	for name, spec := range map[string]core.QueueSpec{"ap": {Path: queue}, "cp": {Path: queue, Consistency: core.CP}} {
		t.Run(name, func(t *testing.T) {
			bubbleOf(t, Options{Stores: 3}, spec, func(w *world) {
				w.group("g", nil)
				told := w.loseTail()
				w.publish("after")
				con := w.consumer("g")
				w.all(w.collect(con, len(told)+1), append(told, "after"), true)
				w.nothingLeft("g")
				w.close(con)
			})
		})
	}
}

// loseTail publishes five messages, and three more of which only one store hears, which then loses its disk. When those
// are given up it answers the five.
func (w *world) loseTail() (told []string) {
	w.t.Helper()
	told = numbers(1, 5)
	w.publish(told...)
	sleep(time.Second)
	heal := w.separated(Store(0), Store(1))
	sent := make(chan error, 3)
	ctx, cancel := context.WithTimeout(w.t.Context(), 15*time.Second)
	defer cancel()
	p := w.publisher()
	for _, b := range numbers(6, 8) {
		w.ok(p.PublishAsync(ctx, client.Message{Body: []byte(b)}, func(_ client.Receipt, err error) { sent <- err }))
	}
	for _, err := range w.loseOnlyHolder(8, 0, p, sent, cap(sent)) {
		if err == nil {
			w.t.Error("a message was acknowledged that two stores lack")
		}
	}
	heal()
	w.eventually("what is lost is given up", 2*time.Minute, func() bool {
		return slices.ContainsFunc(w.sealsOf(), func(s metadata.SealRecord) bool { return s.LostFrom == 6 && s.L == 8 })
	})
	return told
}

// TestLost_WhatIsLeftIsCopied: the stores that had what is left of an extent lose their disks, too, but not before
// there are copies enough.
func TestLost_WhatIsLeftIsCopied(t *testing.T) {
	for name, at := range map[string]int{"together": 2, "in turn": 1} {
		t.Run(name, func(t *testing.T) {
			bubbleOf(t, Options{Stores: 3}, core.QueueSpec{Path: queue}, func(w *world) {
				w.group("g", nil)
				told := w.loseTail()
				copied := func() {
					w.eventually("no extent is open on two stores only", time.Minute, func() bool { return w.thinOnes() == 0 }) // both might be wiped
					w.eventually("what is left has its copies", time.Minute, func() bool {
						return !slices.ContainsFunc(w.sealsOf(), func(s metadata.SealRecord) bool {
							return len(s.Holders) < 3 || slices.ContainsFunc(s.Places(), func(x core.Place) bool {
								h := w.hosts[x.Store]
								return h.process == nil || h.process.log == nil || h.process.log.Identity().Disk != x.Disk
							})
						})
					})
				}
				copied()
				for some := range slices.Chunk([]core.HostID{Store(0), Store(1)}, at) {
					w.eachDown(some, func(h *host) { h.crash((*memdisk.Disk).Wipe) })
					w.Up(some...)
					copied()
				}
				con := w.consumer("g")
				w.all(w.collect(con, len(told)), told, true)
				w.nothingLeft("g")
				w.close(con)
			})
		})
	}
}

// TestLost_WhatOneReplicaHas: a replica that was cut off has more than it knows as committed, and is told the end
// nowhere but by who gives up what lies beyond that.
func TestLost_WhatOneReplicaHas(t *testing.T) {
	bubbleOf(t, Options{Stores: 3}, core.QueueSpec{Path: queue}, func(w *world) {
		w.group("g", nil)
		told := numbers(1, 5)
		w.publish(told...)
		sleep(time.Second)
		sent := make(chan error, 3)
		ctx, cancel := context.WithTimeout(w.t.Context(), 15*time.Second)
		defer cancel()
		p := w.publisher()
		send := func(bodies ...string) {
			for _, b := range bodies {
				w.ok(p.PublishAsync(ctx, client.Message{Body: []byte(b)}, func(_ client.Receipt, err error) { sent <- err }))
			}
			sleep(100 * time.Millisecond)
		}
		heal1 := w.separated(Store(1))
		send("6")
		heal0 := w.separated(Store(0))
		send("7", "8")
		w.loseOnlyHolder(8, 2*time.Second, p, sent, cap(sent))
		heal0()
		heal1()
		w.eventually("what is lost is given up", 2*time.Minute, func() bool {
			return slices.ContainsFunc(w.sealsOf(), func(s metadata.SealRecord) bool { return s.LostFrom == 7 && s.L == 8 })
		})
		con := w.consumer("g")
		w.all(w.collect(con, len(told)+1), append(told, "6"), true)
		w.nothingLeft("g")
		w.close(con)
	})
}

// TestLost_Timers: the end of a timer extent is lost, long before the other messages are due. These are listed and
// counted meanwhile, and delivered when they are due.
func TestLost_Timers(t *testing.T) {
	bubbleOf(t, Options{Stores: 3}, core.QueueSpec{Path: queue}, func(w *world) {
		w.group("g", nil)
		due := time.Now().Add(underrace.Of(8*time.Minute, 20*time.Minute))
		sent := make(chan error, 8)
		ctx, cancel := context.WithTimeout(w.t.Context(), 15*time.Second)
		defer cancel()
		p := w.publisher()
		send := func(bodies ...string) {
			for _, b := range bodies {
				w.ok(p.PublishAsync(ctx, client.Message{Body: []byte(b), DeliverAt: due}, func(_ client.Receipt, err error) { sent <- err }))
			}
			sleep(time.Second)
		}
		send(numbers(1, 5)...)
		heal := w.separated(Store(0), Store(1))
		send(numbers(6, 8)...)
		w.loseOnlyHolder(8, 0, p, sent, cap(sent))
		heal()
		w.eventually("what is lost is given up", 2*time.Minute, func() bool {
			return slices.ContainsFunc(w.sealsOf(), func(s metadata.SealRecord) bool { return s.LostFrom == 6 && s.L == 8 })
		})
		listed := func() (n int) {
			for _, err := range w.Client.Admin().Delayed(w.t.Context(), queue, "") {
				w.ok(err)
				n++
			}
			return n
		}
		if n := listed(); n != 5 {
			t.Errorf("%d timers are listed, want 5", n)
		}
		w.eventually("what is left is counted", time.Minute, func() bool { d := w.depth("g"); return d.Delayed == 5 && d.Ready == 0 })
		con := w.consumer("g")
		sleep(time.Until(due.Add(-time.Minute)))
		w.eventually("what is left is counted while it is read", time.Minute, func() bool { d := w.depth("g"); return d.Delayed == 5 && d.Ready == 0 })
		w.all(w.collect(con, 5), numbers(1, 5), true)
		if late := time.Since(due); late < 0 || late > 7*time.Second { // of them five to see that nothing more comes
			t.Errorf("they came %s late", late)
		}
		if n := strings.Count(w.log.text(), "a read stream was interrupted"); n > 20 {
			t.Errorf("reading was interrupted %d times, with nothing to read", n)
		}
		w.close(con)
		w.nothingLeft("g")
	})
}

// TestLost_GiveUpByCommand: what is not lost is not given up, and the word for damaged copies says nothing by itself.
func TestLost_GiveUpByCommand(t *testing.T) {
	bubbleOf(t, Options{Stores: 3}, core.QueueSpec{Path: queue}, func(w *world) {
		w.group("g", nil)
		told := w.loseTail()
		id := w.sealsOf()[0].Extent.ID.String()
		for _, c := range []struct {
			flags []string
			code  int
			says  string
		}{
			{[]string{"--give-up-quarantined"}, 2, "goes with --force"},
			{nil, 4, "sealed already at 8"},
			{[]string{"--force", "--give-up-quarantined", "--yes"}, 0, ""}, // asked again
		} {
			if _, talk, code := w.command(append([]string{"seal", queue, id}, c.flags...)...); code != c.code || !strings.Contains(talk, c.says) {
				t.Errorf("seal %v: code %d, %s; want %d, %s", c.flags, code, talk, c.code, c.says)
			}
		}
		w.eventually("its copies are shown", time.Minute, func() bool {
			out, _, _ := w.command("list", "extents", queue)
			return strings.Contains(out, "3 of 3, lost from 6")
		})
		con := w.consumer("g")
		w.all(w.collect(con, len(told)), told, true)
		w.close(con)
	})
}
