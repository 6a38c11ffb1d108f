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

// TestLists_QueuesDoNotWaitForEachOther: the rows of one queue cannot be read. The lists of the others are applied, in
// the same call and in other ones, and the answer, which comes in time, names the one that failed.
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

// failing is metadata of which no single row can be read.
type failing struct{ metadata.Store }

func (*failing) Get(context.Context, metadata.Table, metadata.Key, metadata.Consistency) (metadata.Row, error) {
	return metadata.Row{}, core.Errorf(core.CodeUnavailable, "the metadata are away")
}

// TestLists_NewerOneComesWhileOneIsApplied: the answer names the newer one. The shares of the older one are not resumed
// by it.
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
