package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/repair"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestForce_WhileAStoreIsAway: an operator hears which store may have what is lacking and what to do about it, also
// when he has forced the extent before; and the store with a new disk is enough.
func TestForce_WhileAStoreIsAway(t *testing.T) {
	for name, before := range map[string]bool{"for the first time": false, "forced before": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				e := r.extent(r.queue(3, 2), 5)
				_, err := r.seal(e, 5)
				r.ok(err)
				r.eventually("all copies are there", time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
				if before {
					_, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error {
						s.Forced = true
						return nil
					})
					r.ok(err)
				}
				away, others := r.replicas(e)[0], r.replicas(e)[1:]
				force := func() error {
					_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
					return err
				}
				r.kill(away.id)
				r.sleep(5 * time.Second)
				if err := force(); before != (err == nil) || err != nil && (errors.Is(err, repair.ErrAway) || !strings.Contains(err.Error(), "all of it is there")) {
					t.Errorf("with all of it there: %v", err)
				}
				for _, s := range others {
					s.cut(e, 3)
				}
				err = force()
				if !errors.Is(err, repair.ErrAway) || core.CodeOf(err) != core.CodeConflict || r.row(e).LostFrom != 0 {
					t.Errorf("forced: %v, row %+v; want a conflict, and nothing given up", err, r.row(e))
				}
				for _, part := range []string{e.ID.String(), string(away.id), "nothing is given up", "without store/", "again"} {
					if err != nil && !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
			})
		})
	}
}
