package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// listed are the bodies of a group's dead letters, sorted.
func (w *world) listed(group string) (out []string) {
	w.t.Helper()
	for d, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, group) {
		w.ok(err)
		out = append(out, string(d.Message.Body))
	}
	slices.Sort(out)
	return out
}

// idsOf the dead letters with these bodies.
func (w *world) idsOf(group string, bodies ...string) (out []core.MessageID) {
	w.t.Helper()
	for d, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, group) {
		w.ok(err)
		if slices.Contains(bodies, string(d.Message.Body)) {
			out = append(out, d.ID)
		}
	}
	return out
}

func (w *world) equal(what string, got, want []string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestCluster_MergeSelected merges some dead letters, purges others, and merges the rest: each is where the last word
// on it says, at once when that is done, for those who list them, count them or consume them.
func TestCluster_MergeSelected(t *testing.T) {
	bubble(t, Options{Stores: 2, Input: rollAt(2_000)}, func(w *world) {
		admin := w.Client.Admin()
		all := numbers(1, 100)
		w.buried("g", all...)
		path := core.DLQPath(queue, "g")
		_, err := admin.CreateGroup(w.t.Context(), core.GroupSpec{Queue: path, Name: "sift", Start: core.Start{Mode: core.StartEarliest}})
		w.ok(err)
		sift, err := w.Client.Consumer(w.t.Context(), path, "sift", client.Prefetch(1))
		w.ok(err)
		held := w.take(sift, time.Minute)

		merged, purged := []string{"000003", "000050", "000051", "000099"}, []string{"000004", "000052"}
		o, err := admin.MergeSelected(w.t.Context(), queue, "g", core.Selection{IDs: w.idsOf("g", merged...)}, 0)
		w.ok(err)
		if o = w.ended(o.ID); o.State != "done" || o.Done != 4 || o.Selected != 4 || o.Scanned != 100 || o.Total != 100 || o.Error != "" {
			t.Fatalf("the merge is %+v", o)
		}
		without := func(some ...string) []string {
			return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
		}
		w.equal("listed after the merge", w.listed("g"), without(merged...))
		con := w.consumer("g")
		w.all(w.collect(con, len(merged)), merged, true)
		o, err = admin.PurgeSelected(w.t.Context(), queue, "g", core.Selection{IDs: w.idsOf("g", purged...)})
		w.ok(err)
		if o = w.ended(o.ID); o.State != "done" || o.Done != 2 || o.Total != 96 {
			t.Fatalf("the purge is %+v", o)
		}
		rest := without(append(merged, purged...)...)
		w.equal("listed after the purge", w.listed("g"), rest)
		w.eventually("counted after the purge", time.Minute, func() bool {
			depth, err := admin.Depth(w.t.Context(), queue, "g")
			w.ok(err)
			return len(depth) == 1 && depth[0].Dead == uint64(len(rest)) && depth[0].UnknownExtents == 0
		})
		got := map[string]int{string(held.Body): 1}
		w.ok(held.Ack())
		maps.Copy(got, w.collect(sift, len(rest)-1))
		var gone []string
		for body := range got {
			if body != string(held.Body) && !slices.Contains(rest, body) {
				gone = append(gone, body)
			}
		}
		if len(gone) > 1 { // one more was on its way to the consumer before
			t.Errorf("the group on the dead letter queue is given %v, which are not there any more", gone)
		}
		w.close(sift)
		o, err = admin.MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		if o = w.ended(o.ID); o.State != "done" || o.Done != uint64(len(rest)) {
			t.Errorf("the merge of the rest is %+v", o)
		}
		w.all(w.collect(con, len(rest)), rest, true)
		if d := w.take(con, 30*time.Second); d != nil {
			t.Errorf("%s came once more", d.Body)
		}
		w.close(con)
	})
}

// TestCluster_LettersKeepTheirHistory: a message that dies again and again, each time merged alone, tells how it died
// before, the last times.
func TestCluster_LettersKeepTheirHistory(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		admin := w.Client.Admin()
		w.buried("g", numbers(1, 3)...)
		con := w.consumer("g")
		deaths := []string{"bad"}
		for i := range wire.MaxLives + 2 {
			o, err := admin.MergeSelected(w.t.Context(), queue, "g", core.Selection{IDs: w.idsOf("g", "000002")}, 0)
			w.ok(err)
			if o = w.ended(o.ID); o.State != "done" || o.Done != 1 {
				t.Fatalf("the merge is %+v", o)
			}
			deaths = append(deaths, fmt.Sprintf("%d %s", i, strings.Repeat("é", wire.MaxLifeReason)))
			w.ok(w.next(con, "000002", 1).Reject(deaths[i+1]))
			w.eventually("it is a dead letter again", 10*time.Second, func() bool { return w.letters("g") == 3 })
		}
		w.close(con)
		for d, err := range admin.DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			if string(d.Message.Body) != "000002" {
				if len(d.History) > 0 || d.Attempts != 1 {
					t.Errorf("%s has a history: %+v", d.Message.Body, d)
				}
				continue
			}
			if d.Attempts != len(deaths) || len(d.History) != wire.MaxLives {
				t.Fatalf("after %d deaths it is %+v", len(deaths), d)
			}
			before := deaths[len(deaths)-1-wire.MaxLives:]
			for i, l := range d.History {
				if l.Attempts != 1 || l.Reason != "rejected" || l.Error == "" || !strings.HasPrefix(before[i], l.Error) || l.DeadSince.IsZero() || i > 0 && !l.DeadSince.After(d.History[i-1].DeadSince) {
					t.Errorf("life %d is %+v, want one that ended with %.20s", i, l, before[i])
				}
			}
		}
	})
}

// TestCluster_SelectionsSurviveKills kills the controller and the output hosts at random moments while dead letters are
// merged and purged by their attempts, with a group that consumes the dead letter queue, and then all that are left are
// merged: each message is in one visible place in the end, and comes from there.
func TestCluster_SelectionsSurviveKills(t *testing.T) {
	for seed := range uint64(2) {
		bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(10_000)}, func(w *world) {
			random := rand.New(rand.NewPCG(seed, 3))
			admin, all := w.Client.Admin(), numbers(1, 300)
			w.buried("g", all...)
			sleep(2 * time.Second)           // until it is saved that the group is past them where they came from
			place := make(map[string]string) // where each belongs
			want := make(map[string][]string)
			sets := [][]core.MessageID{nil, nil}
			for d, err := range admin.DeadLetters(w.t.Context(), queue, "g") {
				w.ok(err)
				body := string(d.Message.Body)
				place[body] = []string{"merged", "purged", "own", "own"}[random.IntN(4)]
				want[place[body]] = append(want[place[body]], body)
				switch place[body] {
				case "merged":
					sets[0] = append(sets[0], d.ID)
				case "purged":
					sets[1] = append(sets[1], d.ID)
				}
			}
			path := core.DLQPath(queue, "g")
			_, err := admin.CreateGroup(w.t.Context(), core.GroupSpec{Queue: path, Name: "sift", Start: core.Start{Mode: core.StartEarliest}})
			w.ok(err)
			got, sifted := w.ackAll("g", queue), w.ackAll("sift", path)

			o, err := admin.MergeSelected(w.t.Context(), queue, "g", core.Selection{IDs: sets[0]}, 0)
			w.ok(err)
			w.killUntil(random, o.ID)
			if o = w.ended(o.ID); o.State != "done" || o.Done != uint64(len(sets[0])) || o.Selected != o.Done {
				t.Fatalf("seed %d: the merge is %+v, want %d", seed, o, len(sets[0]))
			}
			o, err = admin.PurgeSelected(w.t.Context(), queue, "g", core.Selection{IDs: sets[1]})
			w.ok(err)
			w.killUntil(random, o.ID)
			if o = w.ended(o.ID); o.State != "done" || o.Done != uint64(len(sets[1])) {
				t.Fatalf("seed %d: the purge is %+v, want %d", seed, o, len(sets[1]))
			}
			slices.Sort(want["own"])
			w.equal("listed", w.listed("g"), want["own"])
			w.eventually("what was merged came", 5*time.Minute, func() bool { return got.count() >= len(sets[0]) })
			o, err = admin.MergeDeadLetters(w.t.Context(), queue, "g", 0)
			w.ok(err)
			w.killUntil(random, o.ID)
			if o = w.ended(o.ID); o.State != "done" || o.Done != uint64(len(want["own"])) {
				t.Fatalf("seed %d: the merge of the rest is %+v, want %d", seed, o, len(want["own"]))
			}
			w.eventually("all that was not purged came", 10*time.Minute, func() bool { return got.count() >= len(all)-len(sets[1]) })
			sleep(time.Minute)
			for body, at := range got.stop() {
				if place[body] == "purged" {
					t.Errorf("seed %d: %s was purged, and came", seed, body)
				}
				if len(at) != 1 {
					t.Errorf("seed %d: %s came from %v", seed, body, at)
				}
			}
			sifted.stop()
			w.equal("listed at last", w.listed("g"), nil)
			for e, err := range admin.ListExtents(w.t.Context(), path) {
				w.ok(err)
				if strings.HasPrefix(e.ReadScope, "staging") {
					t.Errorf("seed %d: extent %s is left staging", seed, e.Extent)
				}
			}
		})
	}
}

// killUntil kills the controller or an output host again and again while an operation runs, a few times at most.
func (w *world) killUntil(random *rand.Rand, op core.ID) {
	w.t.Helper()
	for range 4 {
		sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		id := Controller
		if random.IntN(2) == 0 {
			id = OutputOf(random.IntN(2))
		}
		w.Crash(id)
		sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		w.Up(id)
		if o, err := w.Client.Admin().GetOperation(w.t.Context(), op); err == nil && o.Ended() {
			return
		}
	}
}

// drained is what a consumer that acks all was given: from where each message came.
type drained struct {
	mu   sync.Mutex
	from map[string]map[core.Receipt]bool
	end  func()
}

func (d *drained) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.from)
}

func (d *drained) stop() map[string]map[core.Receipt]bool {
	d.end()
	return d.from
}

// ackAll consumes and acks until it is stopped.
func (w *world) ackAll(group, path string) *drained {
	w.t.Helper()
	con, err := w.Client.Consumer(w.t.Context(), path, group)
	w.ok(err)
	out := &drained{from: make(map[string]map[core.Receipt]bool)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d, err := range con.Deliveries(w.t.Context()) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					w.t.Errorf("consume: %v", err)
				}
				return
			}
			out.mu.Lock()
			if out.from[string(d.Body)] == nil {
				out.from[string(d.Body)] = make(map[core.Receipt]bool)
			}
			out.from[string(d.Body)][d.Receipt] = true
			out.mu.Unlock()
			_ = d.Ack()
		}
	}()
	out.end = func() {
		w.close(con)
		<-done
	}
	return out
}

// TestCluster_SelectionIsCancelled: before it is decided nothing has changed, and nothing is left over; another
// operation is a conflict meanwhile.
func TestCluster_SelectionIsCancelled(t *testing.T) {
	bubble(t, Options{Stores: 2, Input: rollAt(2_000)}, func(w *world) {
		admin, all := w.Client.Admin(), numbers(1, 60)
		w.buried("g", all...)
		w.OnMeta(Controller, func(_ context.Context, op Op) error { // what is found cannot be recorded
			if op.Table == metadata.Operations.Name && strings.HasPrefix(op.Key.Partition, "selected/") {
				return core.Errorf(core.CodeUnavailable, "%w", errInjected)
			}
			return nil
		})
		o, err := admin.MergeSelected(w.t.Context(), queue, "g", core.Selection{Reasons: []string{"rejected"}}, 0)
		w.ok(err)
		if _, err := admin.PurgeSelected(w.t.Context(), queue, "g", core.Selection{MinAttempts: 1}); !errors.Is(err, client.ErrConflict) {
			t.Errorf("a purge meanwhile: %v, want a conflict", err)
		}
		sleep(10 * time.Second)
		w.equal("listed meanwhile", w.listed("g"), all)
		staging := 0
		for e, err := range admin.ListExtents(w.t.Context(), core.DLQPath(queue, "g")) {
			w.ok(err)
			if strings.HasPrefix(e.ReadScope, "staging") {
				staging++
			}
		}
		if staging != 1 {
			t.Errorf("there are %d staging extents, want one", staging)
		}
		if o, err = admin.CancelOperation(w.t.Context(), o.ID); err != nil || o.State != "cancelled" || o.Done != 0 {
			t.Fatalf("it is %+v, %v", o, err)
		}
		w.OnMeta(Controller, nil)
		sleep(4 * time.Minute) // retention goes in steps
		w.equal("listed afterwards", w.listed("g"), all)
		for e, err := range admin.ListExtents(w.t.Context(), core.DLQPath(queue, "g")) {
			w.ok(err)
			if e.ReadScope != "own" {
				t.Errorf("extent %s is left, its home is %s", e.Extent, e.ReadScope)
			}
		}
		o, err = admin.PurgeSelected(w.t.Context(), queue, "g", core.Selection{Reasons: []string{"bad"}})
		w.ok(err)
		if o = w.ended(o.ID); o.State != "done" || o.Done != 60 {
			t.Errorf("the purge of all is %+v", o)
		}
		w.equal("listed at last", w.listed("g"), nil)
		w.audited("purge selected dead letters", core.DLQPath(queue, "g"))
	})
}
