package outputhost

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
)

// TestWhyStuck_OfAStoreThatHangs: nobody consumes, and the store of the oldest message hangs. why-stuck says so in the
// time that a frontend waits for it: else the frontend would take this host for unreachable.
func TestWhyStuck_OfAStoreThatHangs(t *testing.T) {
	for _, ended := range []bool{true, false} {
		name := "of an extent without an end"
		if ended {
			name = "of a sealed extent"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t)
				b.stores(map[core.HostID]string{"store": ""})
				peers := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler), NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}})
				defer peers.Close()
				b.deps.Peers = peers
				g, s := b.given()
				if ended {
					g.mu.Lock()
					s.end, s.l, s.last = true, 5, 5
					g.mu.Unlock()
				}
				const frontendWaits = 2 * time.Second
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), frontendWaits)
				defer cancel()
				why, err := b.inspector.WhyStuck(ctx, inspectedGroup{g})
				if took := time.Since(began); err != nil || took >= frontendWaits {
					t.Fatalf("after %s: %v", took, err)
				}
				if why.Reason != "no_readable_replica" && why.Reason != "no_consumers" {
					t.Errorf("it says %s, %v", why.Reason, why.Also)
				}
			})
		})
	}
}
