package controller

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// refuse has a store answer that it cannot do some calls, as one whose log has failed does; all others it answers.
func (r *harness) refuse(s *fakeStore, calls ...string) {
	r.kill(s.id)
	mux := http.NewServeMux()
	path, h := columbav1connect.NewStoreServiceHandler(s)
	refusal := connect.NewErrorWriter()
	mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
		if slices.Contains(calls, req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]) {
			refusal.Write(w, req, convert.RPCError(core.Errorf(core.CodeUnavailable, "the log failed")))
			return
		}
		h.ServeHTTP(w, req)
	})
	r.serve(string(s.id)+":1", s.guard(mux))
}

// TestStores_RefusalIsAnAnswer: a store that is there and cannot fence is not taken for one that goes and comes with
// each try, which would be made without a pause then.
func TestStores_RefusalIsAnAnswer(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		for range 3 {
			r.extent(r.queue(1, 1), 3)
		}
		r.refuse(r.stores[0], "Fence")
		r.leave(r.input.ID)
		r.kill(r.input.ID)
		r.sleep(10 * time.Second)
		before := r.stores[0].count("/Fence")
		r.sleep(time.Minute)
		if n := r.stores[0].count("/Fence") - before; n < 3 || n > 30 {
			t.Errorf("%d fences of 3 extents in a minute, want some with pauses between them", n)
		}
	})
}

// TestRepair_ReadsFromAnotherHolder: the first of two good holders answers everything but reads.
func TestRepair_ReadsFromAnotherHolder(t *testing.T) {
	bubble(t, harnessOptions{stores: 4, edit: seldom}, func(r *harness) {
		e := r.sealed(r.queue(3, 2), 7)
		holders := r.row(e).Holders
		r.refuse(r.store(holders[0]), "ReadRange")
		r.kill(holders[2])
		r.sleep(10 * time.Minute)
		r.whole4(e, 7, holders[2])
	})
}
