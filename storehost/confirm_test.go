package storehost

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// rows are what controllers say of all seal rows: yes, or why not. Safe for concurrent use.
type rows struct {
	mu    sync.Mutex
	no    error
	asked int
}

func (r *rows) answer() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.no
}

// say makes it the answer from now on, and returns how often controllers were asked before.
func (r *rows) say(no error) (asked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, r.asked, r.no = r.asked, 0, no
	return asked
}

func (r *rows) ConfirmEnd(context.Context, core.ExtentID, core.Seq, uint32, uint64) error {
	return r.answer()
}

func (r *rows) ConfirmRemoval(context.Context, core.ExtentID, uint64, core.StoreIdentity) error {
	return r.answer()
}

// TestConfirm_NothingIsDroppedWithoutIt: an end that is not the replica's own, or of a version that no first seal has,
// and a removal change nothing but the fence while controllers refuse, or none answers.
func TestConfirm_NothingIsDroppedWithoutIt(t *testing.T) {
	for _, code := range []core.Code{core.CodeConflict, core.CodeUnavailable} {
		s := startStore(t, "s1")
		e, w := extent("s1"), new(extentlogtest.Writer)
		a := s.dial().openAppend(e)
		a.append(w.Batch(2, 10), 0)
		half := *w
		a.append(w.Batch(3, 10), 0)
		a.awaitAck(5)
		other, beyond := *w, *w
		other.Checksum++
		beyond.Last += 3
		s.rows.say(core.Errorf(code, "no"))
		state := func() *pb.Replica {
			res, err := s.rpc.GetReplica(t.Context(), connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
			must(t, err)
			return res.Msg
		}
		for name, x := range map[string]struct {
			end     *extentlogtest.Writer
			version uint64
		}{
			"nothing": {new(extentlogtest.Writer), 1 << 60}, "before the last batch": {&half, 1}, "beyond": {&beyond, 1},
			"another content": {&other, 1}, "a later version": {w, 2},
		} {
			wantCode(t, s.sealAt(e, x.end, x.version, nil), code)
			if got := state(); !got.Fenced || got.Sealed || got.Last != 5 || got.Version != 0 || got.Damaged {
				t.Errorf("%s, %s: the replica is %v, want only the fence", code, name, got)
			}
			wantCode(t, s.remove(e, x.version, nil), code)
		}
		if asked := s.rows.say(core.Errorf(code, "no")); asked != 10 {
			t.Errorf("controllers were asked %d times, want 10", asked)
		}
		must(t, s.sealAt(e, w, 1, nil)) // its own end …
		must(t, s.sealAt(e, w, 1, nil)) // … and again
		if asked := s.rows.say(core.Errorf(code, "no")); asked != 0 {
			t.Errorf("controllers were asked %d times for the replica's own end", asked)
		}
		wantCode(t, s.sealAt(e, w, 1<<60, nil), code)
		wantCode(t, s.remove(e, 1, nil), code)
		if got := state(); got.Version != 1 || got.Last != 5 {
			t.Errorf("%s: the replica is %v, want all of it at version 1", code, got)
		}
		s.rows.say(nil)
		must(t, s.remove(e, 1, nil))
		wantCode(t, s.replica(e, nil), core.CodeNotFound)
	}
}

// TestConfirm_TheStoresOwnChecksStay: what a controller confirms is refused when the store knows better.
func TestConfirm_TheStoresOwnChecksStay(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	a.append(w.Batch(2, 10), 0)
	half := *w
	a.append(w.Batch(3, 10), 5)
	a.awaitAck(5)
	wantCode(t, s.remove(e, 1, nil), core.CodeConflict) // not fenced
	wantCode(t, s.sealAt(e, &half, 1, nil), core.CodeConflict)
	must(t, s.sealAt(e, w, 3, nil))
	wantCode(t, s.remove(e, 2, nil), core.CodeConflict)
	wantCode(t, s.remove(e, 4, nil), core.CodeConflict)
	must(t, s.remove(e, 3, nil))
}

// answering is a controller that answers each call with an error, or nil.
type answering struct {
	columbav1connect.UnimplementedControllerServiceHandler
	err   error
	asked atomic.Int32
}

// errHangs has a controller answer when its caller has left.
var errHangs = core.Errorf(core.CodeInternal, "it hangs")

func (a *answering) ConfirmRemoval(ctx context.Context, _ *connect.Request[pb.ConfirmRemovalRequest]) (*connect.Response[pb.ConfirmRemovalResponse], error) {
	a.asked.Add(1)
	if a.err == errHangs {
		<-ctx.Done()
	}
	if a.err != nil {
		return nil, convert.RPCError(a.err)
	}
	return connect.NewResponse(&pb.ConfirmRemovalResponse{}), nil
}

// TestControllers_TheFirstAnswerCounts: a controller that does not answer leaves the question to the next; one that
// says no does not.
func TestControllers_TheFirstAnswerCounts(t *testing.T) {
	no, away := core.Errorf(core.CodeConflict, "no"), core.Errorf(core.CodeUnavailable, "away")
	for name, c := range map[string]struct {
		answers []error
		want    core.Code
		asked   int
	}{
		"no controller": {nil, core.CodeUnavailable, 0},
		"yes":           {[]error{nil, no}, "", 1},
		"no":            {[]error{no, nil}, core.CodeConflict, 1},
		"the second":    {[]error{away, nil}, "", 2},
		"no metadata":   {[]error{away, away}, core.CodeUnavailable, 2},
		"of old builds": {[]error{core.Errorf(core.CodeInternal, "no such call")}, core.CodeUnavailable, 1},
		"three hang":    {[]error{errHangs, errHangs, errHangs, nil}, "", 4},
		"the last no":   {[]error{errHangs, away, no}, core.CodeConflict, 3},
	} {
		id := extent().ID
		ranked := []core.HostID{"c0", "c1", "c2", "c3"}[:len(c.answers)]
		ranked = core.Rank(id.String(), ranked, func(id core.HostID) core.HostID { return id })
		self := membership.Host{ID: "s1", Roles: []string{"storehost"}, Address: "s1:1"}
		var others []membership.Host
		var all []*answering
		for i, err := range c.answers {
			a := &answering{err: err}
			mux := http.NewServeMux()
			mux.Handle(columbav1connect.NewControllerServiceHandler(a))
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			all = append(all, a)
			others = append(others, membership.Host{ID: ranked[i], Roles: []string{"controller"}, Address: strings.TrimPrefix(server.URL, "http://")})
		}
		members, err := static.New(self, others...)
		must(t, err)
		pool := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler)})
		t.Cleanup(pool.Close)
		ctx, cancel := context.WithTimeout(t.Context(), confirmTimeout)
		defer cancel()
		err = Controllers{pool, members}.ConfirmRemoval(ctx, id, 1, core.StoreIdentity{Store: "s1"})
		if core.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		asked := 0
		for _, a := range all {
			asked += int(a.asked.Load())
		}
		if asked != c.asked {
			t.Errorf("%s: %d were asked, want %d", name, asked, c.asked)
		}
	}
}
