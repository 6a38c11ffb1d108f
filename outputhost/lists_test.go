package outputhost

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
)

// list is the list of the queue of some assignments, by a controller.
func list(controller string, counter uint64, queue core.QueueID, some ...*pb.Assignment) *pb.AssignmentList {
	return &pb.AssignmentList{Queue: queue.ID[:], Version: versionBy(controller, counter), Assignments: some}
}

// queueOf an assignment.
func queueOf(a *pb.Assignment) core.QueueID { return core.QueueID{ID: core.ID(a.Extent.Queue)} }

// send has lists assigned, and answers the answers.
func (b *harness) send(lists ...*pb.AssignmentList) []*pb.ListAnswer {
	b.t.Helper()
	run := b.deps.Members.Self().Run
	resp, err := b.assign(b.t.Context(), &pb.AssignRequest{Run: run.ID[:], Lists: lists})
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.Lists
}

// has reports whether the host has the share of an assignment.
func (b *harness) has(a *pb.Assignment) bool {
	for _, g := range b.groupsOf(queueOf(a)) {
		g.mu.Lock()
		s := g.mu.shares[core.ExtentID{ID: core.ID(a.Extent.Id)}]
		g.mu.Unlock()
		if s != nil {
			return true
		}
	}
	return false
}

// TestLists_OlderIsRefused: the answer names the newer list, and other queues do not matter.
func TestLists_OlderIsRefused(t *testing.T) {
	b := newHarness(t)
	_, one := b.group()
	_, two := b.group()
	queue := queueOf(one)
	newer := list("c", 5, queue, one)
	if a := b.send(newer, list("c", 3, queueOf(two), two)); !proto.Equal(a[0].Newest, newer.Version) || a[0].Failed != nil || a[1].Failed != nil {
		t.Fatalf("answers %v", a)
	}
	for _, older := range []*pb.AssignmentList{list("c", 4, queue), list("b", 5, queue), list("", 5, queue)} {
		if older.Version.Controller == "" {
			older.Version = nil // of nobody
		}
		if a := b.send(older); !proto.Equal(a[0].Newest, newer.Version) {
			t.Errorf("to version %v it says %v, want %v", older.Version, a[0].Newest, newer.Version)
		}
	}
	if !b.has(one) || !b.has(two) {
		t.Error("an older list took a share")
	}
	for _, next := range []*pb.AssignmentList{list("d", 5, queue), list("b", 6, queue, one), list("a", 7, queue)} {
		if a := b.send(next); !proto.Equal(a[0].Newest, next.Version) || b.has(one) != (len(next.Assignments) > 0) || !b.has(two) {
			t.Errorf("to version %v it says %v; has the share: %t", next.Version, a[0].Newest, b.has(one))
		}
	}
}

// TestLists_EmptyOneIsForgotten: nothing is kept of its queue, and a list of before that comes late gives nothing back.
func TestLists_EmptyOneIsForgotten(t *testing.T) {
	b := newHarness(t)
	_, one := b.group()
	queue := queueOf(one)
	late := list("c", 5, queue, one)
	b.send(late)
	end := list("c", 7, queue)
	b.send(end)
	if n := len(b.versions()); n != 0 || b.has(one) {
		t.Fatalf("%d lists are kept; has the share: %t", n, b.has(one))
	}
	if a := b.send(late); !proto.Equal(a[0].Newest, end.Version) || b.has(one) {
		t.Errorf("to the late list it says %v; has the share: %t", a[0].Newest, b.has(one))
	}
	if a := b.send(end); !proto.Equal(a[0].Newest, end.Version) {
		t.Errorf("to the empty list once more it says %v", a[0].Newest)
	}
	if a := b.send(list("b", 6, queue)); a[0].Newest.Counter != 6 {
		t.Errorf("to an older empty list of a queue of which it has nothing it says %v", a[0].Newest)
	}
	if a := b.send(list("c", 8, queue, one)); a[0].Newest.Counter != 8 || !b.has(one) {
		t.Errorf("to a newer list it says %v; has the share: %t", a[0].Newest, b.has(one))
	}
}

// hanging is metadata that hang for some partitions of the groups.
type hanging struct {
	metadata.Store
	partition string
}

func (s hanging) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t.Name == metadata.Groups.Name && k.Partition == s.partition {
		<-ctx.Done()
		return metadata.Row{}, context.Cause(ctx)
	}
	return s.Store.Get(ctx, t, k, c)
}

// TestLists_QueuesDoNotWaitForEachOther: the rows of one queue cannot be read. The lists of the others are applied, in the same call and in other ones, and the
// answer, which comes in time, names the one that failed.
func TestLists_QueuesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		_, bad := b.group()
		_, good := b.group()
		_, later := b.group()
		b.deps.Meta = hanging{b.meta, queueOf(bad).String()}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var first sync.WaitGroup
		first.Go(func() {
			ctx, cancel := inTime(ctx)
			defer cancel()
			run := b.deps.Members.Self().Run
			resp, err := b.assign(ctx, &pb.AssignRequest{Run: run.ID[:], Lists: []*pb.AssignmentList{list("c", 1, queueOf(bad), bad), list("c", 2, queueOf(good), good)}})
			if err != nil || len(resp.Lists) != 2 || resp.Lists[0].Failed.GetCode() != string(core.CodeDeadline) || resp.Lists[1].Failed != nil {
				t.Errorf("%v, answers %v", err, resp)
			}
		})
		time.Sleep(time.Second)
		if !b.has(good) {
			t.Error("a list waits for one of the same call")
		}
		if a := b.send(list("c", 3, queueOf(later), later)); a[0].Failed != nil || !b.has(later) {
			t.Errorf("a list waits for one of another call: %v", a)
		}
		first.Wait()
		if ctx.Err() != nil {
			t.Error("the answer did not come in time")
		}
	})
}

// controllers has the host reach fake controllers, whose ids are their addresses.
func (b *harness) controllers(all ...*fakeController) {
	b.t.Helper()
	listeners := make(map[string]*netmem.Listener)
	members := []membership.Host{b.deps.Members.Self()}
	for _, c := range all {
		var serving sync.WaitGroup
		mux := http.NewServeMux()
		mux.Handle(columbav1connect.NewControllerServiceHandler(c))
		l, server := netmem.Listen(c.id), &http.Server{Handler: mux}
		listeners[c.id+":1"] = l
		c.ready.Store(true)
		members = append(members, membership.Host{ID: core.HostID(c.id), Roles: []string{"controller"}, Address: c.id + ":1"})
		serving.Go(func() { server.Serve(l) })
		b.t.Cleanup(func() {
			server.Close()
			serving.Wait()
		})
	}
	pool := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler), NetDial: func(ctx context.Context, _, addr string) (net.Conn, error) {
		if l := listeners[addr]; l != nil {
			return l.Dial(ctx)
		}
		return nil, errors.New("nobody listens there")
	}})
	b.t.Cleanup(pool.Close)
	b.deps.Peers = pool
	b.set(members...)
}

func (b *harness) set(members ...membership.Host) {
	b.t.Helper()
	if err := b.deps.Members.(*static.Monitor).Set(members); err != nil {
		b.t.Fatal(err)
	}
}

// compare has the host compare its lists with those of the controllers.
func (b *harness) compare() {
	b.t.Helper()
	if err := b.askShares(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// TestRelist_HostThatMissedPushes asks for the lists that differ, page by page, and gives up what is not named any more.
func TestRelist_HostThatMissedPushes(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c"}
	b.controllers(c)
	var all []*pb.Assignment
	for range 5 {
		_, a := b.group()
		all = append(all, a)
		c.set(queueOf(a), a)
	}
	if b.compare(); b.shareCount() != 5 || c.pages.Load() != 3 || c.asked.Load() != 5 {
		t.Fatalf("at its start it has %d of 5 shares after %d pages and %d lists", b.shareCount(), c.pages.Load(), c.asked.Load())
	}
	if b.compare(); c.asked.Load() != 5 {
		t.Errorf("it asks for %d lists that it has", c.asked.Load()-5)
	}
	c.asked.Store(0)
	c.set(queueOf(all[0]))
	c.forget(queueOf(all[1]))
	_, fresh := b.group()
	c.set(queueOf(fresh), fresh)
	if b.compare(); c.asked.Load() != 3 {
		t.Errorf("it asks for %d lists, want the empty one, the one that is not named, and the new one", c.asked.Load())
	}
	for i, a := range append(all, fresh) {
		if b.has(a) != (i > 1) {
			t.Errorf("it has share %d: %t", i, b.has(a))
		}
	}
}

// TestRelist_ShareThatIsMissing comes back although its list is known: the host lost it, or could not resume it.
func TestRelist_ShareThatIsMissing(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c"}
	b.controllers(c)
	_, one := b.group()
	_, two := b.group()
	c.set(queueOf(two), two)
	b.deps.Meta = &failing{Store: b.meta}
	if a := b.send(c.set(queueOf(one), one)); a[0].Failed == nil || b.has(one) {
		t.Fatalf("answer %v though no row can be read", a[0])
	}
	b.deps.Meta = b.meta
	if b.compare(); !b.has(one) || !b.has(two) {
		t.Error("a share that could not be resumed does not come with the next comparison")
	}
	g := b.groupsOf(queueOf(two))[0]
	g.giveAway(g.mu.shares[core.ExtentID{ID: core.ID(two.Extent.Id)}], b.deps.Now())
	if b.compare(); !b.has(two) {
		t.Error("a share that the host gave up by itself does not come with the next comparison")
	}
}

// failing is metadata of which no single row can be read.
type failing struct{ metadata.Store }

func (*failing) Get(context.Context, metadata.Table, metadata.Key, metadata.Consistency) (metadata.Row, error) {
	return metadata.Row{}, core.Errorf(core.CodeUnavailable, "the metadata are away")
}

// TestRelist_TwoControllers have the lists of different queues: neither takes what the other gave. When one is gone, the other's word counts for its queues.
func TestRelist_TwoControllers(t *testing.T) {
	b := newHarness(t)
	first, second := &fakeController{id: "c1"}, &fakeController{id: "c2"}
	b.controllers(first, second)
	_, one := b.group()
	_, two := b.group()
	_, three := b.group()
	first.set(queueOf(one), one)
	second.set(queueOf(two), two)
	second.set(queueOf(three), three)
	for range 3 {
		b.compare()
		if !b.has(one) || !b.has(two) || !b.has(three) {
			t.Fatal("a controller took what another one gave")
		}
	}
	second.forget(queueOf(three))
	if b.compare(); !b.has(one) || !b.has(two) || b.has(three) {
		t.Error("a share is kept that its controller does not name")
	}
	c1, _ := membership.Find(b.deps.Members, "c1")
	b.set(b.deps.Members.Self(), c1)
	first.mu.Lock()
	first.mu.foreign = map[core.QueueID]bool{queueOf(two): true}
	first.mu.Unlock()
	if b.compare(); !b.has(two) {
		t.Error("a share was given up though nobody who is responsible for its queue said so")
	}
	first.mu.Lock()
	first.mu.foreign = nil
	first.mu.Unlock()
	if b.compare(); b.has(two) || !b.has(one) {
		t.Error("a share of a controller that is gone is kept though the one that took over does not name it")
	}
}

// TestRelist_ConfirmGivesUpAndResumesLater: the lease is confirmed without waiting for what is new.
func TestRelist_ConfirmGivesUpAndResumesLater(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c"}
	b.controllers(c)
	_, gone := b.group()
	_, stays := b.group()
	_, moved := b.group() // to another host, and back
	_, fresh := b.group()
	for _, a := range []*pb.Assignment{gone, stays, moved} {
		c.set(queueOf(a), a)
	}
	b.compare()
	c.forget(queueOf(gone))
	c.set(queueOf(fresh), fresh)
	again := proto.CloneOf(moved)
	again.Counter++
	c.set(queueOf(again), again)
	if err := (leased{b.Host}).Confirm(t.Context(), b.deps.Members.Hosts("controller")); err != nil {
		t.Fatal(err)
	}
	if b.has(gone) || !b.has(stays) || b.has(moved) || b.has(fresh) {
		t.Errorf("confirmed it has the share that was taken: %t, that stays: %t, that another host had in between: %t, the new one: %t", b.has(gone), b.has(stays), b.has(moved), b.has(fresh))
	}
	if b.compare(); !b.has(fresh) || !b.has(stays) || !b.has(moved) {
		t.Error("the new share does not come after that")
	}
	if s := b.groupsOf(queueOf(moved))[0].mu.shares[core.ExtentID{ID: core.ID(moved.Extent.Id)}]; s.generation != again.Counter {
		t.Error("the share that another host had in between is not resumed anew")
	}
}

// TestLists_NewerOneComesWhileOneIsApplied: the answer names the newer one. The shares of the older one are not resumed by it.
func TestLists_NewerOneComesWhileOneIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		_, one := b.group()
		queue := queueOf(one)
		b.deps.Meta = hanging{b.meta, queue.String()}
		var first sync.WaitGroup
		first.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			run := b.deps.Members.Self().Run
			resp, err := b.assign(ctx, &pb.AssignRequest{Run: run.ID[:], Lists: []*pb.AssignmentList{list("c", 1, queue, one)}})
			if err != nil || resp.Lists[0].Newest.GetCounter() != 2 {
				t.Errorf("%v, answers %v, want the newer list named", err, resp)
			}
		})
		synctest.Wait()
		o, err := offer(list("d", 2, queue, one))
		if err != nil {
			t.Fatal(err)
		}
		a, _, ok := b.accept(o)
		if !ok {
			t.Fatal("the newer list is refused")
		}
		defer a.release()
		first.Wait()
	})
}

// TestRelist_HostThatIsNoControllerAnyMore: nobody can ask it for its queues. The word of the others counts.
func TestRelist_HostThatIsNoControllerAnyMore(t *testing.T) {
	b := newHarness(t)
	first, second := &fakeController{id: "c1"}, &fakeController{id: "c2"}
	b.controllers(first, second)
	_, one := b.group()
	second.set(queueOf(one), one)
	if b.compare(); !b.has(one) {
		t.Fatal("it has no share")
	}
	c1, _ := membership.Find(b.deps.Members, "c1")
	c2, _ := membership.Find(b.deps.Members, "c2")
	c2.Roles = []string{"store"}
	b.set(b.deps.Members.Self(), c1, c2)
	if b.compare(); b.has(one) {
		t.Error("a share is kept that no controller names")
	}
}

// TestRelist_PageThatComesAgain ends the comparison with an error.
func TestRelist_PageThatComesAgain(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c", stuck: true}
	b.controllers(c)
	for range 2 * fakePage {
		_, a := b.group()
		c.set(queueOf(a), a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := b.askShares(ctx); err == nil || ctx.Err() != nil || c.pages.Load() != 2 {
		t.Errorf("after %d pages: %v", c.pages.Load(), err)
	}
}
