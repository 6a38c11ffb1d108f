package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

const startedAMomentAgo = "has started a moment ago, and reads the extents; ask again"

// heldHints is metadata whose hints can be read once open is closed. Readers wait.
type heldHints struct {
	metadata.Store
	open chan struct{}
}

func (s *heldHints) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Work {
		select {
		case <-s.open:
		case <-ctx.Done():
			return nil, false, core.Errorf(core.CodeDeadline, "list: %w", context.Cause(ctx))
		}
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// reading has a controller beside others start again after before, and read its extents until it is told to go on.
func reading(t *testing.T, o harnessOptions, before func(r *harness), f func(r *harness, goOn func())) {
	t.Helper()
	o.edit = beside
	bubble(t, o, func(r *harness) {
		before(r)
		r.ctl.end()
		held := &heldHints{Store: r.meta, open: make(chan struct{})}
		r.use(held)
		r.ctl = r.startController(beside)
		f(r, func() {
			close(held.open)
			r.eventually("the extents are known", 2*loadAgain, func() bool { return r.ctl.loaded() == nil })
		})
	})
}

// wants checks the code of an error, and a part of its text.
func wants(t *testing.T, what string, err error, code core.Code, text string) {
	t.Helper()
	if core.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %s with %q", what, err, code, text)
	}
}

// TestLoading_MakesAndSeals: while a controller reads the extents it makes extents of AP queues within a second, moves
// the chains of CP queues on, and seals extents that it does not know. It is responsible for nothing until all are
// known. Then groups get them all.
func TestLoading_MakesAndSeals(t *testing.T) {
	var ap, cp core.QueueID
	var old, whole, head core.Extent
	reading(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness) {
		ap, cp = r.queue(3, 2), r.chainedQueue()
		r.group(ap, "g")
		r.group(cp, "g")
		old, whole, head = r.extent(ap, 5), r.extent(r.queue(3, 2), 7), r.extent(cp, 3)
		_, err := r.seal(whole, 7)
		r.ok(err)
	}, func(r *harness, goOn func()) {
		r.group(whole.Queue, "g")
		made, err := r.ctl.ensureExtent(r.t.Context(), r.wish(ap))
		r.ok(err)
		wants(t, "ready", r.ctl.Ready(), core.CodeUnavailable, startedAMomentAgo)
		if _, err := r.seal(old, 5); err != nil {
			t.Errorf("an extent that is not known: %v", err)
		}
		if resp, err := r.seal(whole, 7); err != nil || resp.L != 7 {
			t.Errorf("an extent that was sealed, and is not known: %+v, %v", resp, err)
		}
		w := r.wish(cp)
		w.have = []core.ExtentID{head.ID}
		_, err = r.ctl.ensureExtent(r.t.Context(), w)
		wants(t, "the head of a chain, of its host", err, core.CodeExists, "has the head")
		if _, err := r.seal(head, 3); err != nil {
			t.Errorf("the head of a chain: %v", err)
		}
		next, err := r.ctl.ensureExtent(r.t.Context(), w)
		if r.ok(err); next.Chain != 2 {
			t.Errorf("after place 1 comes %d", next.Chain)
		}
		r.sleep(5 * time.Minute)
		if r.ctl.duties.Holds() || r.ctl.shares.isComplete() || len(r.outputs[0].shares()) > 0 {
			t.Error("it is responsible for queues that it may not know")
		}
		goOn()
		r.eventually("all extents have an owner", 30*time.Second, func() bool { return len(r.outputs[0].shares()) == 5 })
		r.whole(old, 5, 3)
		r.whole(whole, 7, 3)
		if again, err := r.ctl.ensureExtent(r.t.Context(), r.wish(ap)); err != nil || again.ID != made.ID {
			t.Errorf("asked again: %s, %v; want %s, which was made before all extents were known", again.ID, err, made.ID)
		}
		if n := len(r.ctl.extents.Of(ap)); n != 2 {
			t.Errorf("the queue has %d extents, want 2", n)
		}
		if text := r.log.text(); strings.Count(text, "the extents are known") != 2 { // one for each start
			t.Errorf("the log says %s", text)
		}
	})
}

// TestLoading_Refuses: a controller that reads the extents answers nothing that needs all of them, and says why.
func TestLoading_Refuses(t *testing.T) {
	var e core.Extent
	reading(t, harnessOptions{stores: 2, outputs: 1}, func(r *harness) { e = r.extent(r.queue(2, 1), 1) }, func(r *harness, goOn func()) {
		s, ctx, out := &service{r.ctl.Host}, r.t.Context(), r.outputs[0]
		queue := e.Queue.ID[:]
		calls := map[string]func() error{
			"ListUndecided":  func() error { return call(ctx, s.ListUndecided, &pb.ListUndecidedRequest{}) },
			"SealAllOfStore": func() error { return call(ctx, s.SealAllOfStore, &pb.SealAllOfStoreRequest{Store: "s9"}) },
			"DeleteOrphans":  func() error { return call(ctx, s.DeleteOrphans, &pb.DeleteOrphansRequest{}) },
			"StartGroup": func() error {
				return call(ctx, s.StartGroup, &pb.StartGroupRequest{Queue: queue, Name: "g", Group: queue})
			},
			"PreviewRewind": func() error {
				return call(ctx, s.PreviewRewind, &pb.RewindGroupRequest{Queue: queue, Group: "g", To: "latest", Id: queue})
			},
			"RewindGroup": func() error {
				return call(ctx, s.RewindGroup, &pb.RewindGroupRequest{Queue: queue, Group: "g", To: "latest", Id: queue})
			},
			"ListDepths": func() error { return call(ctx, s.ListDepths, &pb.ListDepthsRequest{}) },
			"ListAssignments": func() error {
				return call(ctx, s.ListAssignments, &pb.ListAssignmentsRequest{Owner: string(out.id), Run: out.run.ID[:]})
			},
			"GetAssignments": func() error {
				return call(ctx, s.GetAssignments, &pb.GetAssignmentsRequest{Owner: string(out.id), Run: out.run.ID[:]})
			},
			"SealExtent, forced": func() error {
				return call(ctx, s.SealExtent, &pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Force: true, Reason: "operator"})
			},
		}
		for name, f := range calls {
			wants(t, name, f(), core.CodeUnavailable, startedAMomentAgo)
		}
		for name, f := range map[string]func() error{ // another controller may be responsible
			"LearnExtent": func() error {
				return call(ctx, s.LearnExtent, &pb.LearnExtentRequest{Reader: queue, Queue: queue, Extent: e.ID.ID[:]})
			},
			"HearShares": func() error { return call(ctx, s.HearShares, &pb.HearSharesRequest{Queue: queue}) },
			"LeaseQuota": func() error {
				return call(ctx, s.LeaseQuota, &pb.LeaseQuotaRequest{Run: r.input.Run.ID[:], Queues: []*pb.QueueFill{{Queue: queue}}})
			},
		} {
			wants(t, name, f(), core.CodeMoved, "")
		}
		resp, err := s.RenewShares(ctx, connect.NewRequest(&pb.RenewSharesRequest{Owner: string(out.id), Run: out.run.ID[:]}))
		if r.ok(err); resp.Msg.Held {
			t.Error("it says that it is responsible for shares")
		}
		goOn()
		r.eventually("it answers", 30*time.Second, func() bool {
			return calls["ListUndecided"]() == nil && calls["ListAssignments"]() == nil && calls["ListDepths"]() == nil
		})
	})
}

// call is one RPC, as its caller gets it.
func call[Q, R any](ctx context.Context, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) error {
	_, err := f(ctx, connect.NewRequest(req))
	return convert.FromRPC(err)
}

// TestLoading_MetadataAway: a controller starts while no metadata answer. It says so once a minute, proves no majority,
// and reads the extents when the metadata are back.
func TestLoading_MetadataAway(t *testing.T) {
	meta := &refusing{Store: memory.New()}
	bubble(t, harnessOptions{stores: 2, edit: beside, meta: meta}, func(r *harness) {
		e := r.extent(r.queue(2, 1), 4)
		r.ctl.end()
		meta.on.Store(true)
		r.ctl = r.startController(beside)
		r.sleep(10*time.Minute + time.Second)
		if n := strings.Count(r.log.text(), "the extents cannot be read yet"); n < 9 || n > 12 {
			t.Errorf("the log says %d times in ten minutes that the extents cannot be read", n)
		}
		if is := r.ctl.verdict(t); !strings.HasPrefix(is, "outage") {
			t.Errorf("the state of the metadata is %q", is)
		}
		if _, err := r.ctl.ensureExtent(r.t.Context(), r.wish(e.Queue)); err == nil {
			t.Error("an extent is made although no copy of the metadata answers")
		}
		meta.on.Store(false)
		r.eventually("the extents are known", 10*time.Second, func() bool { return r.ctl.loaded() == nil })
		r.eventually("it is responsible", 10*time.Second, r.ctl.duties.Holds)
		if x, known := r.ctl.extents.Get(e.ID); !known || x.State != core.ExtentOpen {
			t.Errorf("the extent of before is known: %t, as %+v", known, x)
		}
		if _, err := r.seal(e, 4); err != nil {
			t.Error(err)
		}
	})
}

// TestLoading_WithoutAMajority: a controller starts on the side of a cut that lacks a majority. It makes extents of AP
// queues, and groups get what is published there. When the cut is over it reads the extents, and the groups keep
// theirs.
func TestLoading_WithoutAMajority(t *testing.T) {
	apart(t, harnessOptions{stores: 2, outputs: 1}, func(r *harness, meta *faulty.Replicas) {
		queue := r.queue(2, 1)
		r.group(queue, "g")
		before, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		r.ctl.end()
		meta.Repair()
		meta.Cut()
		r.use(meta.Apart())
		r.ctl = r.startController(beside)
		r.use(meta.Whole())
		r.renews(0)
		began := time.Now()
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		if r.ok(err); time.Since(began) > 2*time.Second {
			t.Errorf("it took %s", time.Since(began))
		}
		r.eventually("its share is assigned", 5*time.Second, func() bool { return r.sharesIn(e.ID, true) == 1 })
		r.sleep(time.Minute)
		if r.ctl.loaded() == nil || r.ctl.duties.Holds() {
			t.Error("without a majority it knows all extents, or holds a session lease")
		}
		meta.Rejoin()
		r.eventually("the extents are known", 10*time.Second, func() bool { return r.ctl.loaded() == nil })
		r.eventually("the shares of both extents are in the lists of the queue", 30*time.Second, func() bool {
			return r.sharesIn(e.ID, false) == 1 && r.sharesIn(before.ID, false) == 1 && r.sharesIn(e.ID, true) == 0
		})
	})
}

// TestLoading_ProvesNoMajority: a controller that reads the extents says whether it has a majority by the reads of the
// session leases.
func TestLoading_ProvesNoMajority(t *testing.T) {
	reading(t, harnessOptions{}, func(*harness) {}, func(r *harness, goOn func()) {
		s := &service{r.ctl.Host}
		r.sleep(2 * time.Second)
		resp, err := s.DescribeMajority(r.t.Context(), connect.NewRequest(&pb.DescribeMajorityRequest{}))
		if r.ok(err); resp.Msg.Lacks || resp.Msg.AnsweredMs > 2000 {
			t.Errorf("reads are answered, and it says %+v", resp.Msg)
		}
		if err := r.ctl.nowhere(core.Errorf(core.CodeUnavailable, "a store is away")); strings.Contains(err.Error(), "majority") {
			t.Errorf("it blames the metadata: %v", err)
		}
		goOn()
	})
}

// TestLoading_Stops: a stop ends the reading, whether it waits for an answer or for its next try. The bubble ends with
// all goroutines.
func TestLoading_Stops(t *testing.T) {
	reading(t, harnessOptions{stores: 1}, func(*harness) {}, func(r *harness, _ func()) {
		began := time.Now()
		r.ctl.end()
		if took := time.Since(began); took > 0 {
			t.Errorf("the stop took %s", took)
		}
		meta := &refusing{Store: r.meta}
		meta.on.Store(true)
		r.use(meta)
		r.ctl = r.startController(beside)
		r.sleep(loadAgain / 2)
		began = time.Now()
		r.ctl.end()
		if took := time.Since(began); took > 0 {
			t.Errorf("the stop between two tries took %s", took)
		}
		meta.on.Store(false)
		r.ctl = nil
		r.use(meta.Store)
	})
}

// TestLoading_KeepsTheHomeOfAnExtent: a controller that does not know an extent seals it for those whom its create row
// names.
func TestLoading_KeepsTheHomeOfAnExtent(t *testing.T) {
	var e core.Extent
	staging := core.Home{Kind: core.HomeStaging, Operation: core.ID{7}}
	reading(t, harnessOptions{stores: 2}, func(r *harness) {
		made := r.extent(r.queue(2, 1), 0)
		e = made
		e.ID = core.ExtentID{ID: core.NewID(time.Now())}
		r.ok(r.ctl.writeExtent(r.t.Context(), metadata.ExtentRecord{Extent: e, Created: time.Now(), Wanted: 2, Home: staging}, time.Now()))
		for _, s := range r.replicas(e) {
			s.write(e, "1", "2")
		}
	}, func(r *harness, goOn func()) {
		_, err := r.seal(e, 2)
		r.ok(err)
		if row := r.row(e); row.Home != staging {
			t.Errorf("the extent is read by %+v, want %+v", row.Home, staging)
		}
		goOn()
	})
}
