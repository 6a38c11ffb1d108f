package controller

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/prometheus/client_golang/prometheus"
)

// sharesOfManyQueues is a controller without a network that knows 50 shares of each queue, all of one owner.
func sharesOfManyQueues(queues int) (h *Host, o catalog.HostRun, one catalog.Decision) {
	now := time.Now()
	self := catalog.HostRun{Host: "controller-1", Run: newRun()}
	h = &Host{cfg: DefaultConfig(), metrics: newMetrics(prometheus.NewRegistry()), unread: newUnread(slog.New(slog.DiscardHandler), prometheus.NewGauge(prometheus.GaugeOpts{})), extents: catalog.NewExtents(), shares: newShares(self, now)}
	o = catalog.HostRun{Host: "output-1", Run: newRun()}
	for range queues {
		queue, group := core.QueueID{ID: core.NewID(now)}, core.GroupID{ID: core.NewID(now)}
		for range 50 {
			e := core.Extent{
				ID: core.ExtentID{ID: core.NewID(now)}, Queue: queue, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "input-1", InputRun: o.Run,
				Token: core.WriterToken{ID: core.NewID(now)}, Replicas: []core.HostID{"store-1", "store-2", "store-3"},
			}
			h.extents.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, State: core.ExtentOpen})
			one = catalog.Decision{Share: catalog.Share{Group: group, Extent: e.ID}, Queue: queue, Name: "group", Counter: 1, By: self.Host, Owner: o}
			h.shares.Set(one)
		}
	}
	return h, o, one
}

// sendDue marshals the lists that an owner has not confirmed, which it then does, and answers how many there were, of
// how many bytes.
func sendDue(tb testing.TB, h *Host, o catalog.HostRun) (lists, bytes int) {
	due, _ := h.shares.Due(o, nil, func(core.QueueID) bool { return false })
	for _, queue := range due {
		version := h.shares.List(o, queue, core.ListVersion{}).Version
		b, err := proto.Marshal(h.listOf(o, queue, core.ListVersion{}))
		if err != nil {
			tb.Fatal(err)
		}
		h.shares.Answered(o, queue, version, version, true)
		lists, bytes = lists+1, bytes+len(b)
	}
	return lists, bytes
}

// BenchmarkChangeOfOneShare is what it costs to tell an output host with 50,000 shares in 1,000 queues of a change of
// one.
func BenchmarkChangeOfOneShare(b *testing.B) {
	h, o, one := sharesOfManyQueues(1000)
	sendDue(b, h, o)
	bytes := 0
	for b.Loop() {
		one.Counter++
		h.shares.Set(one)
		_, bytes = sendDue(b, h, o)
	}
	b.ReportMetric(float64(bytes), "wire-bytes")
}

// TestPush_ChangeOfOneShareCostsOneList: the others are not sent again.
func TestPush_ChangeOfOneShareCostsOneList(t *testing.T) {
	h, o, one := sharesOfManyQueues(100)
	all, whole := sendDue(t, h, o)
	one.Counter++
	h.shares.Set(one)
	lists, bytes := sendDue(t, h, o)
	if all != 100 || lists != 1 || bytes > whole/90 {
		t.Errorf("%d lists of %d bytes at first, then %d of %d, want 100 and 1", all, whole, lists, bytes)
	}
}
