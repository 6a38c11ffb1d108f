package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// buried makes a group, and dead letters of bodies in it.
func (w *world) buried(group string, bodies ...string) {
	w.t.Helper()
	w.group(group, func(g *core.GroupSpec) { g.MaxDeliveries = 2 })
	w.publish(bodies...)
	con := w.consumer(group)
	for i := range bodies {
		d := w.take(con, time.Minute)
		if d == nil {
			w.t.Fatal("a message is missing")
		}
		w.ok(d.Reject("bad"))
		if i%50 == 0 {
			sleep(time.Second) // an extent rolls now and then only
		}
	}
	w.close(con)
	w.eventually("all are dead letters", 2*time.Minute, func() bool { return w.letters(group) == len(bodies) })
}

// homes are the receipts of all messages of a group's dead letter queue, by the home of their extents.
func (w *world) homes(group string) map[core.HomeKind]uint64 {
	w.t.Helper()
	out := make(map[core.HomeKind]uint64)
	for e, err := range w.Client.Admin().ListExtents(w.t.Context(), core.DLQPath(queue, group)) {
		w.ok(err)
		home, err := core.ParseHome(e.ReadScope)
		w.ok(err)
		out[home.Kind] += uint64(e.LastSeq)
	}
	return out
}

func (w *world) ended(id core.ID) client.Operation {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	o, err := w.Client.Admin().WaitOperation(ctx, id)
	w.ok(err)
	return o
}

// TestCluster_MergedMessagesBeginAnew follows dead letters back into their group, and again to their end.
func TestCluster_MergedMessagesBeginAnew(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("other", nil)
		w.buried("g", numbers(1, 20)...)
		before := make(map[client.MessageID]client.DeadLetter)
		for d, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			before[d.ID] = d
		}
		sleep(3 * time.Minute)
		_, err := w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "g", SkipOlder: 2 * time.Minute, Delay: time.Minute})
		w.ok(err)
		sleep(5 * time.Second)
		o, err := w.Client.Admin().MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		if o = w.ended(o.ID); o.State != "done" || o.Done != 20 || o.Total != 20 {
			t.Fatalf("the merge is %+v", o)
		}
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d dead letters are left", n)
		}
		con := w.consumer("g")
		for range 20 {
			d := w.take(con, 10*time.Second)
			if d == nil {
				t.Fatal("a merged message did not come at once")
			}
			was, known := before[d.ID]
			if !known || d.Attempt != 1 || !d.Enqueued.Equal(was.FirstEnqueued) || string(d.Body) != string(was.Message.Body) {
				t.Fatalf("got %s as attempt %d, enqueued %s; was %+v", d.Body, d.Attempt, d.Enqueued, was)
			}
			if string(d.Body) == "000007" {
				w.ok(d.Nack(client.After(0), client.Reason("again")))
				continue
			}
			w.ok(d.Ack())
		}
		d := w.next(con, "000007", 2)
		w.ok(d.Reject("for good"))
		w.eventually("it is a dead letter again", 10*time.Second, func() bool { return w.letters("g") == 1 })
		for d, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			if was := before[d.ID]; d.Attempts != 3 || !d.FirstEnqueued.Equal(was.FirstEnqueued) || d.Error != "for good" {
				t.Errorf("it is %+v, was %+v", d, was)
			} else if want := []client.EarlierFailure{{Attempts: was.Attempts, Reason: was.Reason, Error: was.Error, DeadSince: was.DeadSince, LastConsumer: was.LastConsumer}}; !cmp.Equal(want, d.History) {
				t.Errorf("its history is %+v, want %+v", d.History, want)
			}
		}
		other := w.consumer("other")
		w.all(w.collect(other, 20), numbers(1, 20), true)
		if d := w.take(con, 30*time.Second); d != nil {
			t.Errorf("%s came once more", d.Body)
		}
		w.close(con)
		w.close(other)
	})
}

// TestCluster_MergeSurvivesKills kills the controller and the output host at random moments while 2,000 dead letters
// are merged: in the end each is in one place, and comes from there.
func TestCluster_MergeSurvivesKills(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(20_000)}, func(w *world) {
		random := rand.New(rand.NewPCG(1, 2))
		want := numbers(1, 2000)
		w.buried("g", want...)
		total := w.homes("g")[core.HomeOwn]
		o, err := w.Client.Admin().MergeDeadLetters(w.t.Context(), queue, "g", 200)
		w.ok(err)
		con := w.consumer("g")
		got, receipts := make(map[string]core.Receipt), 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for d, err := range con.Deliveries(w.t.Context()) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("consume: %v", err)
					}
					return
				}
				if at, known := got[string(d.Body)]; known && at != d.Receipt {
					t.Errorf("%s came from %s and from %s", d.Body, at, d.Receipt)
				}
				got[string(d.Body)] = d.Receipt
				receipts++
				_ = d.Ack()
			}
		}()
		for range 8 {
			sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			id := Controller
			if random.IntN(2) == 0 {
				id = OutputOf(random.IntN(2))
			}
			w.Crash(id)
			sleep(time.Duration(random.IntN(500)) * time.Millisecond)
			w.Up(id)
		}
		if o = w.ended(o.ID); o.State != "done" || o.Done != total || o.Total != total {
			t.Errorf("the merge is %+v, there were %d", o, total)
		}
		w.eventually("all came", 5*time.Minute, func() bool { return w.homesDone("g") })
		w.close(con)
		<-done
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d dead letters are left", n)
		}
		if homes := w.homes("g"); homes[core.HomeOwn] != 0 || homes[core.HomeMerged] != total {
			t.Errorf("messages by home: %v, want all of %d merged", homes, total)
		}
		if len(got) != len(want) {
			t.Errorf("%d of %d messages came, in %d deliveries", len(got), len(want), receipts)
		}
	})
}

// TestCluster_DepthOfMerged: merged messages wait in an extent whose owner may have no other share of the group. They
// are in its depth.
func TestCluster_DepthOfMerged(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 4}, func(w *world) {
		for i := range 6 { // each group gets the messages of those before it, too
			g, n := fmt.Sprint("g", i), 5*(i+1)
			w.buried(g, numbers(n-4, n)...)
			o, err := w.Client.Admin().MergeDeadLetters(w.t.Context(), queue, g, 0)
			w.ok(err)
			if o = w.ended(o.ID); o.State != "done" || o.Done != 5 {
				t.Fatalf("the merge is %+v", o)
			}
			w.eventually("the depth has the merged messages", time.Minute, func() bool { return counts(w.depth(g)) == fmt.Sprint(n, " 0 0 0 0") })
			con := w.consumer(g)
			w.all(w.collect(con, n), numbers(1, n), true)
			w.close(con)
		}
	})
}

// homesDone reports whether a group has consumed all that was merged into it.
func (w *world) homesDone(group string) bool {
	w.t.Helper()
	g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, group)
	w.ok(err)
	done := w.rows(metadata.Dones, g.ID.String())
	merged := 0
	for e, err := range w.Client.Admin().ListExtents(w.t.Context(), core.DLQPath(queue, group)) {
		w.ok(err)
		if home, _ := core.ParseHome(e.ReadScope); home.Kind == core.HomeMerged {
			merged++
		}
	}
	n := 0
	for _, k := range w.extents(queue) {
		n += k
	}
	return merged > 0 && done >= merged && done >= merged+n-1
}

// TestCluster_PurgeAndMergeAtOnce asks for both: one wins, the other is told so.
func TestCluster_PurgeAndMergeAtOnce(t *testing.T) {
	for _, first := range []string{"merge", "both"} {
		t.Run(first, func(t *testing.T) {
			bubble(t, Options{Input: rollAt(2_000)}, func(w *world) {
				w.buried("g", numbers(1, 200)...)
				admin := w.Client.Admin()
				merge := func() error { _, err := admin.MergeDeadLetters(w.t.Context(), queue, "g", 50); return err }
				purge := func() error { _, err := admin.PurgeDeadLetters(w.t.Context(), queue, "g"); return err }
				w.OnMeta(Controller, func(_ context.Context, op Op) error { // the first has not ended when the second comes
					if op.Table == metadata.Seals.Name {
						return core.Errorf(core.CodeUnavailable, "%w", errInjected)
					}
					return nil
				})
				var errs [2]error
				switch first {
				case "merge":
					errs = [2]error{merge(), purge()}
				default:
					other := make(chan error, 1)
					go func() { other <- purge() }()
					errs[0] = merge()
					errs[1] = <-other
					if errs[0] != nil {
						errs[0], errs[1] = errs[1], errs[0]
					}
				}
				if errs[0] != nil || !errors.Is(errs[1], client.ErrConflict) {
					t.Fatalf("the first got %v, the second %v; want a conflict", errs[0], errs[1])
				}
				w.OnMeta(Controller, nil)
				all, err := admin.ListOperations(w.t.Context(), true)
				w.ok(err)
				if len(all) != 1 {
					t.Fatalf("operations %+v, want one", all)
				}
				if o := w.ended(all[0].ID); o.State != "done" || o.Done != 200 {
					t.Errorf("it is %+v", o)
				}
				homes := w.homes("g")
				if homes[core.HomeOwn] != 0 || len(homes) > 2 {
					t.Errorf("messages by home: %v, want all in one", homes)
				}
			})
		})
	}
}

// TestCluster_CancelLeavesWhatWasMerged stops a slow merge in the middle, and goes on with another one.
func TestCluster_CancelLeavesWhatWasMerged(t *testing.T) {
	bubble(t, Options{Input: rollAt(2_000)}, func(w *world) {
		const n = 300
		w.buried("g", numbers(1, n)...)
		admin := w.Client.Admin()
		o, err := admin.MergeDeadLetters(w.t.Context(), queue, "g", 10)
		w.ok(err)
		sleep(10 * time.Second)
		o, err = admin.CancelOperation(w.t.Context(), o.ID)
		w.ok(err)
		if o.State != "cancelled" || o.Done == 0 || o.Done >= n {
			t.Fatalf("the merge is %+v", o)
		}
		sleep(time.Minute)
		o, err = admin.GetOperation(w.t.Context(), o.ID) // one more may have moved before the cancellation was heard of
		w.ok(err)
		homes := w.homes("g")
		if homes[core.HomeMerged] != o.Done || homes[core.HomeOwn] != n-o.Done || w.letters("g") != int(n-o.Done) {
			t.Errorf("messages by home: %v, %d are listed, want %d merged", homes, w.letters("g"), o.Done)
		}
		next, err := admin.PurgeDeadLetters(w.t.Context(), queue, "g")
		w.ok(err)
		if next = w.ended(next.ID); next.Done != n-o.Done {
			t.Errorf("the purge is %+v", next)
		}
		if old, err := admin.GetOperation(w.t.Context(), o.ID); err != nil || old.State != "cancelled" {
			t.Errorf("the first is %+v, %v", old, err)
		}
		con := w.consumer("g")
		if got := w.collect(con, int(o.Done)); len(got) != int(o.Done) {
			t.Errorf("%d came, want the %d that were merged", len(got), o.Done)
		}
		w.close(con)
		sleep(4 * time.Minute)
		if n := w.homes("g")[core.HomePurged]; n > 0 {
			t.Errorf("%d purged messages are not removed", n)
		}
	})
}

// TestCluster_GroupOnADeadLetterQueue consumes dead letters like any queue; what is exhausted there blocks.
func TestCluster_GroupOnADeadLetterQueue(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.buried("g", numbers(1, 10)...)
		path := core.DLQPath(queue, "g")
		admin := w.Client.Admin()
		_, err := admin.CreateGroup(w.t.Context(), core.GroupSpec{Queue: path, Name: "sift", Start: core.Start{Mode: core.StartEarliest}, MaxDeliveries: 1})
		w.ok(err)
		con, err := w.Client.Consumer(w.t.Context(), path, "sift")
		w.ok(err)
		for range 10 {
			d := w.take(con, time.Minute)
			switch {
			case d == nil:
				t.Fatal("a dead letter did not come")
			case string(d.Body) == "000004":
				w.ok(d.Reject("nobody knows"))
			default:
				w.ok(d.Ack())
			}
		}
		sleep(10 * time.Second)
		depth, err := admin.Depth(w.t.Context(), path, "sift")
		w.ok(err)
		if len(depth) != 1 || depth[0].Blocked != 1 || depth[0].Ready+depth[0].InFlight+depth[0].Dead != 0 || depth[0].UnknownExtents > 0 {
			t.Errorf("depth %+v, want one blocked", depth)
		}
		if n := w.letters("g"); n != 10 {
			t.Errorf("%d dead letters are listed, they are not consumed by their readers", n)
		}
		o, err := admin.MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		w.ended(o.ID)
		back := w.consumer("g")
		w.all(w.collect(back, 10), numbers(1, 10), true)
		w.close(back)
		w.close(con)
	})
}
