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

// TestProbe_StoreThatHangs: who watches readers must not wait for the same store again and again.
func TestProbe_StoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.stores(map[core.HostID]string{"a": "", "b": ""})
		b.deps.Peers = peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler), NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}})
		defer b.deps.Peers.Close()
		g := &group{h: b.Host}
		var quiet []*reader
		for i := range 50 * probesAtOnce {
			e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
			s := &share{group: g, extent: e, removed: true}
			quiet = append(quiet, &reader{g: g, s: s, store: []core.HostID{"a", "b"}[i%2]})
		}
		began := time.Now()
		b.probe(t.Context(), quiet)
		if took := time.Since(began); took > 3*probeTimeout {
			t.Errorf("looking at %d readers took %s", len(quiet), took)
		}
	})
}
