package storehost

import (
	"fmt"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
)

// BenchmarkAppend measures one append stream over loopback; compare with BenchmarkEngine of extentlog at the same batch
// and depth.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ record, batch, depth int }{{1 << 10, 1 << 10, 1}, {1 << 10, 256 << 10, 8}, {100, 256 << 10, 8}} {
		b.Run(fmt.Sprintf("%d=record/%dKiB=batch/%d=depth", c.record, c.batch>>10, c.depth), func(b *testing.B) {
			s := startStore(b, "s1")
			l := s.dial()
			e, w := extent("s1"), new(extentlogtest.Writer)
			a := l.openAppend(e)
			count := max(1, c.batch/(c.record+16))
			b.SetBytes(int64(count * c.record))
			var acked core.Seq
			for b.Loop() {
				a.append(w.Batch(count, c.record), acked)
				for w.Last-acked >= core.Seq(c.depth*count) {
					acked = a.ack()
				}
			}
			for acked < w.Last {
				acked = a.ack()
			}
			b.ReportMetric(float64(b.N*count)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// ack takes one ack.
func (s *stream) ack() core.Seq {
	s.l.t.Helper()
	f := s.receive()
	v, err := wire.DecodePosition(f.Body)
	if f.Type != wire.TypeAppendAck || err != nil {
		s.l.t.Fatalf("got frame %d %v, want an ack", f.Type, describe(f))
	}
	return core.Seq(v)
}
