package controller

import (
	"context"
	"math"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata/lease"
)

// acknowledging is a controller that acknowledges each session, with a counter.
type acknowledging struct {
	columbav1connect.UnimplementedControllerServiceHandler
	counter uint64
}

func (a acknowledging) AcknowledgeSession(context.Context, *connect.Request[pb.AcknowledgeSessionRequest]) (*connect.Response[pb.AcknowledgeSessionResponse], error) {
	return connect.NewResponse(&pb.AcknowledgeSessionResponse{Counter: a.counter}), nil
}

// TestSession_CounterWithoutRoom: lists above the counter that another controller answers would have versions that
// wrap, and output hosts would take each for an old one.
func TestSession_CounterWithoutRoom(t *testing.T) {
	for counter, ok := range map[uint64]bool{1: true, math.MaxUint64: false} {
		bubble(t, harnessOptions{}, func(r *harness) {
			_, handler := columbav1connect.NewControllerServiceHandler(acknowledging{counter: counter})
			r.serve("ctl2:1", handler)
			r.join(membership.Host{ID: "ctl2", Roles: []string{"controller"}, Address: "ctl2:1", Run: newRun()})
			_, err := colleague{r.ctl.Host}.Ask(r.t.Context(), lease.Record{Owner: "ctl2"}, 1)
			if ok != (err == nil) || !ok && core.CodeOf(err) != core.CodeBadArgument {
				t.Errorf("counter %d: %v", counter, err)
			}
		})
	}
}

// TestSession_AcknowledgedByTheRunThatIsAsked: a controller acknowledges nothing for another process with its id, and
// no controller that the membership here lacks: it could not ask that one.
func TestSession_AcknowledgedByTheRunThatIsAsked(t *testing.T) {
	two(t, harnessOptions{}, func(r *harness, both [2]*running) {
		self, other := both[0].deps.Members.Self(), both[1].deps.Members.Self()
		for name, c := range map[string]struct {
			from  core.HostID
			asked core.RunID
			want  core.Code
		}{
			"this run":             {other.ID, self.Run, ""},
			"an earlier version":   {other.ID, core.RunID{}, ""},
			"another run":          {other.ID, newRun(), core.CodeMoved},
			"an unknown colleague": {"stranger", self.Run, core.CodeUnavailable},
		} {
			req := &pb.AcknowledgeSessionRequest{Controller: string(c.from), Run: other.Run.ID[:], Asked: c.asked.ID[:]}
			if c.asked.ID.IsZero() {
				req.Asked = nil
			}
			if _, err := both[0].acknowledge(r.t.Context(), req); core.CodeOf(err) != c.want {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
		_, err := colleague{both[1].Host}.Ask(r.t.Context(), lease.Record{Owner: self.ID, Run: newRun()}, 0)
		if core.CodeOf(err) != core.CodeMoved {
			t.Errorf("another process of the host answers: %v", err)
		}
	})
}
