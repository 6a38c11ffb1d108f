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
	"github.com/columbamq/columba/metadata/memory"
)

// besideCopy has a controller that is responsible for a queue for five minutes, and then one more that starts on a copy
// of the metadata.
func besideCopy(t *testing.T, f func(r *harness, queue core.QueueID, fork metadata.Store, other *running)) {
	bubble(t, harnessOptions{stores: 3, edit: beside}, func(r *harness) {
		queue := r.queue(3, 2)
		q, _, err := metadata.Read[metadata.QueueRecord](r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(queue), metadata.Serial)
		r.ok(err)
		first, fork := r.meta, metadata.Store(memory.New())
		r.ok(metadata.Create(r.t.Context(), fork, metadata.Queues, metadata.QueueKey(queue), q))
		r.answer(r.ctl)
		r.eventually("the first one is responsible", 20*time.Second, func() bool { return r.ctl.duties.Responsible(queue.ID) })
		r.sleep(5 * time.Minute)
		r.config = beside
		r.use(fork)
		other := r.beside("other")
		defer other.end()
		r.use(first)
		f(r, queue, fork, other)
	})
}

// TestKeyspaces_ActsAtNoTime: a controller starts on a copy of the metadata of its cluster. It makes no extents, seals
// none and is not ready before it knows that it has to stand back.
func TestKeyspaces_ActsAtNoTime(t *testing.T) {
	besideCopy(t, func(r *harness, queue core.QueueID, _ metadata.Store, other *running) {
		e := r.extent(queue, 5)
		s := &service{other.Host}
		for range 40 {
			if err := other.Ready(); err == nil {
				t.Fatal("it is ready")
			}
			_, err := s.EnsureExtent(r.t.Context(), connect.NewRequest(&pb.EnsureExtentRequest{Queue: queue.ID[:], Input: string(r.input.ID), InputRun: r.input.Run.ID[:], Kind: string(core.KindLog)}))
			if core.CodeOf(convert.FromRPC(err)) != core.CodeUnavailable {
				t.Fatalf("it makes an extent: %v", err)
			}
			_, err = s.SealExtent(r.t.Context(), connect.NewRequest(&pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Floor: 5}))
			if core.CodeOf(convert.FromRPC(err)) != core.CodeUnavailable {
				t.Fatalf("it seals an extent: %v", err)
			}
			r.sleep(500 * time.Millisecond)
		}
	})
}

// TestKeyspaces_LaterControllerStandsBack: a controller starts on a copy of the metadata of its cluster. It does
// nothing for the queues, it creates no extents, its log names both hosts, and the controller of the cluster goes on.
func TestKeyspaces_LaterControllerStandsBack(t *testing.T) {
	besideCopy(t, func(r *harness, queue core.QueueID, fork metadata.Store, other *running) {
		for range 300 {
			r.sleep(100 * time.Millisecond)
			if !r.ctl.duties.Responsible(queue.ID) || other.duties.Responsible(queue.ID) {
				t.Fatalf("responsible are %t and %t, want the first one only", r.ctl.duties.Responsible(queue.ID), other.duties.Responsible(queue.ID))
			}
		}
		for _, s := range []string{"this one stands back", "host=other other=ctl", "level=ERROR"} {
			if !strings.Contains(r.log.text(), s) {
				t.Errorf("the logs lack %q", s)
			}
		}
		ask := &pb.EnsureExtentRequest{Queue: queue.ID[:], Input: string(r.input.ID), InputRun: r.input.Run.ID[:], Kind: string(core.KindLog)}
		if _, err := (&service{other.Host}).EnsureExtent(r.t.Context(), connect.NewRequest(ask)); core.CodeOf(convert.FromRPC(err)) != core.CodeUnavailable {
			t.Errorf("it makes an extent: %v", err)
		}
		e := r.extent(queue, 5)
		r.sleep(20 * time.Minute)
		if _, _, err := metadata.Read[metadata.SealRecord](r.t.Context(), fork, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("the extent is sealed in the other metadata: %v", err)
		}
		if row := r.row(e); row.State != "" && row.State != core.ExtentOpen {
			t.Errorf("the extent is %v", row.State)
		}
	})
}

// slowLeases are metadata in which a lease is read after 300 ms.
type slowLeases struct{ metadata.Store }

func (s slowLeases) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == metadata.Leases {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return metadata.Row{}, core.Errorf(core.CodeDeadline, "read a lease: %w", context.Cause(ctx))
		}
	}
	return s.Store.Get(ctx, t, k, c)
}

// TestKeyspaces_CallsWaitForTheFirstQuestions: a controller is called in the moment of its start. It does not refuse
// the call because it has not asked the other controller yet which metadata that one uses: it asks, then answers.
func TestKeyspaces_CallsWaitForTheFirstQuestions(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: beside}, func(r *harness) {
		queue := r.queue(3, 2)
		r.answer(r.ctl)
		r.eventually("the first one is responsible", 20*time.Second, func() bool { return r.ctl.duties.Responsible(queue.ID) })
		r.config = beside
		r.use(slowLeases{r.meta})
		other := r.beside("other")
		defer other.end()
		s := &service{other.Host}
		if err := other.duties.StandsBack(); err == nil {
			t.Fatal("it has asked already, so this test tries nothing")
		}
		if _, err := s.EnsureExtent(r.t.Context(), connect.NewRequest(&pb.EnsureExtentRequest{Queue: queue.ID[:], Input: string(r.input.ID), InputRun: r.input.Run.ID[:], Kind: string(core.KindLog)})); err != nil {
			t.Errorf("it refuses the call: %v", err)
		}
	})
}
