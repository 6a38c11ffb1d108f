package outputhost

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire/ws"
)

// TestProbe_StoreThatHangs: who watches readers must not wait for the same store again and again.
func TestProbe_StoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
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
		probe(t.Context(), quiet)
		if took := time.Since(began); took > 3*probeTimeout {
			t.Errorf("looking at %d readers took %s", len(quiet), took)
		}
	})
}

// hung is metadata whose lists do not come; single rows do.
type hung struct {
	metadata.Store
	read atomic.Int64
}

func (h *hung) List(ctx context.Context, _ metadata.Table, _, _ string, _ int, _ metadata.Consistency) ([]metadata.Row, bool, error) {
	<-ctx.Done()
	return nil, false, context.Cause(ctx)
}

func (h *hung) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	h.read.Add(1)
	return h.Store.Get(ctx, t, k, c)
}

// TestWatch_SlowMetadata: hosts come and go, and where consumers should be connected to takes a while to read. Readers
// are looked at meanwhile.
func TestWatch_SlowMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.share(10, 0)
		meta := &hung{Store: b.meta}
		b.deps.Meta = meta
		s.reader = &reader{g: g, s: s, store: "a", mux: &ws.Mux{}, granted: 1, heard: time.Now(), probe: firstProbe}
		g.mu.consumers = append(g.mu.consumers, &consumer{h: b.Host})
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		loops.Go(func() { b.watch(ctx) })
		loops.Go(func() { onEach(ctx, b.routing, b.tellRoutes) })
		time.Sleep(watchEvery)
		members := []membership.Host{b.deps.Members.Self(), {ID: "a", Roles: []string{"storehost"}, Address: "a:1", Run: core.RunID{ID: core.NewID(time.Now())}}}
		for i := range membership.ConsumeHosts {
			id := core.HostID(fmt.Sprintf("out%d", i))
			members = append(members, membership.Host{ID: id, Roles: []string{"outputhost"}, Address: string(id) + ":1", Run: core.RunID{ID: core.NewID(time.Now())}})
		}
		if err := b.deps.Members.(*static.Monitor).Set(members); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if meta.read.Load() == 0 {
			t.Error("in a second nobody looked at a reader that hears nothing")
		}
		g.mu.Lock()
		s.reader, g.mu.consumers = nil, nil
		g.mu.Unlock()
		cancel()
		loops.Wait()
	})
}
