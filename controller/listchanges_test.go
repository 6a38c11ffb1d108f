package controller

import (
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// listing is a controller that answers ListChanges, and does no more.
func listing(t *testing.T) (*service, core.RunID) {
	self := membership.Host{ID: "ctl", Roles: []string{"controller"}, Address: "ctl:1", Run: newRun()}
	members, err := static.New(self)
	if err != nil {
		t.Fatal(err)
	}
	return &service{&Host{changes: newChanges(3 * changesPage), deps: Deps{Members: members}}}, self.Run
}

// TestListChanges_Answers: to one that asks for the first time, from where the last answer ended, and of another run.
func TestListChanges_Answers(t *testing.T) {
	s, run := listing(t)
	queue := core.QueueID{ID: core.ID{1}}
	ask := func(of core.RunID, after uint64) *pb.ListChangesResponse {
		t.Helper()
		req := &pb.ListChangesRequest{After: after}
		if !of.IsZero() {
			req.Run = of.ID[:]
		}
		resp, err := s.ListChanges(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Msg
	}
	for i := range changesPage + 10 {
		s.h.changes.add(changed{id: numbered(i), queue: queue})
	}
	for name, of := range map[string]core.RunID{"at first": {}, "of another run": newRun()} {
		if got := ask(of, 0); got.Complete || got.More || len(got.Changed) > 0 || got.Counter != changesPage+10 {
			t.Errorf("%s: up to %d, complete %t, more %t, %d changes", name, got.Counter, got.Complete, got.More, len(got.Changed))
		}
	}
	first := ask(run, 0)
	if !first.Complete || !first.More || len(first.Changed) != changesPage {
		t.Errorf("the first page: complete %t, more %t, %d changes", first.Complete, first.More, len(first.Changed))
	}
	second := ask(run, first.Counter)
	if !second.Complete || second.More || len(second.Changed) != 10 || second.Counter != changesPage+10 {
		t.Errorf("the second page: complete %t, more %t, %d changes", second.Complete, second.More, len(second.Changed))
	}
	part, err := changesOf(run, first.Counter, second)
	if err != nil || len(part.changed) != 10 || part.changed[9].id != numbered(changesPage+9) || part.changed[9].queue != queue || !part.complete {
		t.Errorf("read as %+v, %v", part, err)
	}
}

// TestListChanges_Refusals: of requests that no controller makes, and of answers that none gives.
func TestListChanges_Refusals(t *testing.T) {
	s, run := listing(t)
	refused := func(code core.Code, err error) {
		t.Helper()
		if core.CodeOf(err) != code {
			t.Errorf("answered with %v, want %s", err, code)
		}
	}
	_, err := s.ListChanges(t.Context(), connect.NewRequest(&pb.ListChangesRequest{Run: []byte("short")}))
	refused(core.CodeBadID, convert.FromRPC(err))
	s.h.cfg.Alone = true
	_, err = s.ListChanges(t.Context(), connect.NewRequest(&pb.ListChangesRequest{}))
	refused(core.CodeUnsupported, convert.FromRPC(err))

	id, other := numbered(1).ID, newRun()
	good := func() *pb.ListChangesResponse {
		return &pb.ListChangesResponse{Run: run.ID[:], Counter: 9, Complete: true, Changed: []*pb.ChangedExtent{{Extent: id[:]}}}
	}
	if part, err := changesOf(run, 8, good()); err != nil || len(part.changed) != 1 {
		t.Errorf("a good answer is read as %+v, %v", part, err)
	}
	for code, edits := range map[core.Code][]func(*pb.ListChangesResponse){
		core.CodeBadID: {
			func(r *pb.ListChangesResponse) { r.Run = nil },
			func(r *pb.ListChangesResponse) { r.Changed[0].Extent = id[:15] },
			func(r *pb.ListChangesResponse) { r.Changed[0].Queue = []byte{1} },
			func(r *pb.ListChangesResponse) { r.Changed[0] = nil },
		},
		core.CodeMoved:    {func(r *pb.ListChangesResponse) { r.Run = other.ID[:] }},
		core.CodeTooLarge: {func(r *pb.ListChangesResponse) { r.Changed = make([]*pb.ChangedExtent, changesPage+1) }},
		core.CodeBadArgument: {func(r *pb.ListChangesResponse) { r.Counter = 7 }, func(r *pb.ListChangesResponse) { r.Counter, r.More = 8, true },
			func(r *pb.ListChangesResponse) { r.Changed, r.More = nil, true }},
	} {
		for _, edit := range edits {
			resp := good()
			edit(resp)
			_, err := changesOf(run, 8, resp)
			refused(code, err)
		}
	}
}
