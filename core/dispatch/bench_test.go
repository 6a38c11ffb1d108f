package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// BenchmarkOfferTakeAck is one message's way through: batches of 250, taken by runs, acked one by one.
func BenchmarkOfferTakeAck(b *testing.B) {
	for name, single := range map[string]bool{"ack one by one": true, "ack by runs": false} {
		b.Run(name, func(b *testing.B) {
			const n = 250
			g := NewGroup(core.GroupSpec{}.WithDefaults())
			s := g.AddShare(core.ExtentID{}, State{}, time.Unix(0, 0))
			r := records(1, n, nil)
			now := time.Unix(1_700_000_000, 0)
			var runs []Run
			var bad []Refusal
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += n {
				r.Base = core.Seq(i + 1)
				if err := s.Offer(r, now); err != nil {
					b.Fatal(err)
				}
				for left := n; left > 0; {
					runs = g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, now, runs[:0])
					for _, run := range runs {
						left -= int(run.Count)
						if !single {
							bad = s.Ack(run.Base, run.Count, run.Attempt, now, bad[:0])
							continue
						}
						for k := range run.Count {
							bad = s.Ack(run.Base+core.Seq(k), 1, run.Attempt, now, bad[:0])
						}
					}
				}
			}
			if len(bad) > 0 {
				b.Fatal(bad)
			}
		})
	}
}

// BenchmarkStuck is the same with the first message never settled.
func BenchmarkStuck(b *testing.B) {
	const n = 250
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	s := g.AddShare(core.ExtentID{}, State{}, time.Unix(0, 0))
	r := records(1, n, nil)
	now := time.Unix(1_700_000_000, 0)
	var runs []Run
	var bad []Refusal
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		r.Base = core.Seq(i + 1)
		if err := s.Offer(r, now); err != nil {
			b.Fatal(err)
		}
		for g.Ready() {
			runs = g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, now, runs[:0])
			for _, run := range runs {
				for k := range run.Count {
					if run.Base+core.Seq(k) != 1 {
						bad = s.Ack(run.Base+core.Seq(k), 1, run.Attempt, now, bad[:0])
					}
				}
			}
		}
	}
	if len(bad) > 0 || len(s.table.chunks) > 1 {
		b.Fatalf("%v refused, %d chunks", bad, len(s.table.chunks))
	}
}

// BenchmarkRedeliver is one nack, checkpoint and redelivery per message, 250 at a time.
func BenchmarkRedeliver(b *testing.B) {
	const n = 250
	g := NewGroup(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries}.WithDefaults())
	now := time.Unix(1_700_000_000, 0)
	s := g.AddShare(core.ExtentID{}, State{}, now)
	if err := s.Offer(records(1, n, nil), now); err != nil {
		b.Fatal(err)
	}
	var blob []byte
	var runs []Run
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		runs = g.Take(1, Credit{Messages: n, Bytes: 1 << 20}, now, runs[:0])
		for _, run := range runs {
			for k := range run.Count {
				if err := s.Nack(run.Base+core.Seq(k), run.Attempt, 0, nil, 0, now); err != nil {
					b.Fatal(err)
				}
			}
		}
		var token uint64
		blob, token = s.Checkpoint(blob[:0], false, now)
		s.Saved(token)
		g.Tick(now)
	}
}

// BenchmarkUnread asks what is left to read, as after each event, while every other message that was handed out is
// acked.
func BenchmarkUnread(b *testing.B) {
	const n = 8000
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	now := time.Unix(1_700_000_000, 0)
	s := g.AddShare(core.ExtentID{}, State{}, now)
	if err := s.Offer(records(1, n, nil), now); err != nil {
		b.Fatal(err)
	}
	for _, run := range g.Take(1, Credit{Messages: n, Bytes: 1 << 30}, now, nil) {
		for k := uint32(1); k < run.Count; k += 2 {
			s.Ack(run.Base+core.Seq(k), 1, run.Attempt, now, nil)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if s.Unread(2*n) != n {
			b.Fatal(s.Unread(2 * n))
		}
	}
}

// BenchmarkPark is one message's way to the retry queue, 250 at a time.
func BenchmarkPark(b *testing.B) {
	const n = 250
	g := NewGroup(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true, MaxDelayedRetries: core.MaxMaxDelayedRetries}.WithDefaults())
	now := time.Unix(1_700_000_000, 0)
	s := g.AddShare(core.ExtentID{}, State{}, now)
	r := records(1, n, nil)
	var blob []byte
	var runs []Run
	var parks []Transfer
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		r.Base = core.Seq(i + 1)
		if err := s.Offer(r, now); err != nil {
			b.Fatal(err)
		}
		runs = g.Take(1, Credit{Messages: n, Bytes: 1 << 20}, now, runs[:0])
		for _, run := range runs {
			for k := range run.Count {
				if err := s.Nack(run.Base+core.Seq(k), run.Attempt, time.Hour, nil, 0, now); err != nil {
					b.Fatal(err)
				}
			}
		}
		var token uint64
		blob, token = s.Checkpoint(blob[:0], false, now)
		s.Saved(token)
		parks = g.TakeTransfers(RetryQueue, n, parks[:0])
		for _, p := range parks {
			p.Share.Transferred(p.Seq, now)
		}
	}
	if parked := g.Counters().RetryQueued; parked < uint64(b.N) {
		b.Fatalf("%d of %d messages are parked", parked, b.N)
	}
}

// BenchmarkBreaker is what the breaker costs each success, and each failure between successes.
func BenchmarkBreaker(b *testing.B) {
	for name, failures := range map[string]int{"success": 0, "failure": 1} {
		b.Run(name, func(b *testing.B) {
			x := newBreaker(core.BreakerAlways, time.Minute, false)
			x.outcome(groupScope, outcome{id: core.Receipt{Seq: 1}}, sec)
			now := sec
			b.ReportAllocs()
			for b.Loop() {
				now++
				x.outcome(groupScope, outcome{successes: 1}, now)
				for range failures {
					x.outcome(groupScope, outcome{id: core.Receipt{Seq: 1}}, now)
				}
			}
		})
	}
}
