package outputhost

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core/dispatch"
)

// loseBatches empties the supply of a share, as a defect might, which still counts its messages.
func loseBatches(rules *dispatch.Share) {
	f := reflect.ValueOf(rules).Elem().FieldByName("supply").Elem().Elem().FieldByName("batches")
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().SetZero()
}

// TestHost_RebuildsABrokenShare loses the batches of a share that has messages in flight, and unread ones behind them.
func TestHost_RebuildsABrokenShare(t *testing.T) {
	b := newHarness(t)
	var said bytes.Buffer
	b.log = slog.New(slog.NewTextHandler(&said, nil))
	g, s := b.share(100, 10)
	now := b.deps.Now()
	g.mu.Lock()
	if bad := s.rules.Ack(1, 10, 1, now, nil); len(bad) > 0 {
		t.Fatal(bad)
	}
	g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
	g.mu.rules.Take(7, dispatch.Credit{Messages: 1, Bytes: 1 << 20}, now, nil)
	if bad := s.rules.Ack(11, 1, 1, now, nil); len(bad) > 0 {
		t.Fatal(bad)
	}
	g.mu.Unlock()
	rebuilt := func() float64 {
		t.Helper()
		r := prometheus.NewRegistry()
		r.MustRegister(b.metrics.mended)
		families, err := r.Gather()
		if err != nil || len(families) != 1 {
			t.Fatalf("%d families, %v", len(families), err)
		}
		return families[0].GetMetric()[0].GetCounter().GetValue()
	}
	if g.mendShares(now); rebuilt() != 0 || said.Len() > 0 {
		t.Fatalf("a share that is well was rebuilt %g times: %s", rebuilt(), said.String())
	}
	loseBatches(s.rules)
	r := &reader{g: g, s: s}
	s.reader = r
	g.mendShares(now)
	if rebuilt() != 1 || !strings.Contains(said.String(), "seq 12 was read and is nowhere") || !strings.Contains(said.String(), s.extent.ID.String()) {
		t.Errorf("it was rebuilt %g times, and this was said: %s", rebuilt(), said.String())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if from := s.rules.ReadFrom(); from != 12 || s.rules.HeldBatches() != 0 {
		t.Errorf("it is read again from %d with %d bytes held, want 12 and none", from, s.rules.HeldBatches())
	}
	if shareOf(s.rules) != s {
		t.Error("what it hands out from now on leads to no share")
	}
	if s.reader == r || !r.stopped.Load() {
		t.Error("the reader of before goes on")
	}
}

// TestHost_OverlooksNothingForLong: nobody was told of a change of a share. The host finds it with the next round,
// while no event comes.
func TestHost_OverlooksNothingForLong(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 1)
	g.mu.Lock()
	if err := s.rules.Reject(1, 1, nil, b.deps.Now()); err != nil {
		t.Fatal(err)
	}
	g.mu.rules.TakeChanged(func(*dispatch.Share) {})
	g.mu.Unlock()
	b.refresh(t.Context())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.told != saveBusy {
		t.Errorf("the saver was told urgency %d, want %d", g.mu.told, saveBusy)
	}
}
