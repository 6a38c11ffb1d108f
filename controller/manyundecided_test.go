package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// BenchmarkReconcile_ManyUndecided is a round of seals while so many extents cannot be decided and wait for their next
// try: all stores are away.
func BenchmarkReconcile_ManyUndecided(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			now := time.Now()
			members, err := static.New(membership.Host{ID: "ctl", Roles: []string{"controller"}, Address: "ctl:1", Run: core.RunID{ID: core.NewID(now)}})
			if err != nil {
				b.Fatal(err)
			}
			cfg := DefaultConfig()
			cfg.Alone = true
			meta := memory.New()
			defer meta.Close()
			pool := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler)})
			defer pool.Close()
			h, err := New(cfg, Deps{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Meta: meta, Peers: pool, Members: members, Now: func() time.Time { return now }})
			if err != nil {
				b.Fatal(err)
			}
			var all []core.Extent
			for range n {
				e := core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}, Kind: core.KindLog, Replicas: []core.HostID{"s0", "s1", "s2"}}
				h.extents.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e, Wanted: 3}, State: core.ExtentSealing})
				h.noteUndecided(e, stays{errors.New("its stores are away"), seal.Decision{NotReached: e.Replicas}})
				all = append(all, e)
			}
			now = now.Add(undecidedAfter)
			for _, e := range all {
				h.noteStuck(e.ID, true)
			}
			h.reconcile()
			b.ReportAllocs()
			for b.Loop() {
				h.reconcile()
			}
		})
	}
}
