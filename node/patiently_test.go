package node

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
)

func TestNode_AsksMetadataAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{o: Options{Log: slog.New(slog.DiscardHandler)}}
		for name, tc := range map[string]struct {
			errs  []error // of the first calls; the last one stays
			calls int
			code  core.Code
		}{
			"at once":                 {[]error{nil}, 1, ""},
			"after two failures":      {[]error{core.Errorf(core.CodeUnavailable, "a"), core.Errorf(core.CodeUnknown, "b"), nil}, 3, ""},
			"what asking cannot mend": {[]error{core.Errorf(core.CodeConflict, "another cluster")}, 1, core.CodeConflict},
		} {
			calls := 0
			err := n.patiently(t.Context(), func() error {
				calls++
				return tc.errs[min(calls, len(tc.errs))-1]
			})
			if calls != tc.calls || err != nil && core.CodeOf(err) != tc.code || (err == nil) != (tc.code == "") {
				t.Errorf("%s: %d calls, %v", name, calls, err)
			}
		}
		var said bytes.Buffer
		n.o.Log = slog.New(slog.NewTextHandler(&said, nil))
		began := time.Now()
		err := n.patiently(t.Context(), func() error { return core.Errorf(core.CodeUnavailable, "no node answers") })
		wantCode(t, "for ever", err, core.CodeUnavailable, "no node answers")
		if took := time.Since(began); took < metadataWait || took > metadataWait+metadataPause {
			t.Errorf("it asked for %s, want %s", took, metadataWait)
		}
		if lines := strings.Count(said.String(), "do not answer"); lines < 6 || lines > 7 { // the last one at the end of the minute, or not
			t.Errorf("it said so %d times in a minute, want 6 or 7:\n%s", lines, said.String())
		}
	})
}

// TestGated_StartsAgain: a role whose first reads fail is started again, and serves nobody until then.
func TestGated_StartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{o: Options{Log: slog.New(slog.DiscardHandler)}}
		r := &slowStart{fails: 2}
		g := &gated{namedRole: namedRole{"outputhost", r}, mux: http.NewServeMux(), patiently: n.patiently}
		if err := g.Start(t.Context()); err != nil || r.starts != 3 || !g.open.Load() {
			t.Errorf("%d starts, %v, open: %t", r.starts, err, g.open.Load())
		}
		r.fails = 1000
		g.open.Store(false)
		wantCode(t, "for ever", g.Start(t.Context()), core.CodeUnavailable, "the metadata do not answer")
		if g.open.Load() {
			t.Error("it serves without having started")
		}
	})
}

// TestServe_RolesThatReadTheMetadataStartAgain: each of them waits for the metadata in the same way.
func TestServe_RolesThatReadTheMetadataStartAgain(t *testing.T) {
	for _, role := range Roles {
		want := role == RoleController || role == RoleOutput || role == RoleFrontend
		if readsMetadata(role) != want {
			t.Errorf("%s is started again: %t", role, !want)
		}
	}
}

// slowStart is a role whose start fails some times.
type slowStart struct {
	role
	fails, starts int
}

func (r *slowStart) Start(context.Context) error {
	if r.starts++; r.starts <= r.fails {
		return core.Errorf(core.CodeUnavailable, "the metadata do not answer")
	}
	return nil
}
