package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// failedBatch is how many messages come, are taken and are acked at a time.
const failedBatch = 250

// failedMessages is how many have failed: as many as leave first deliveries room in checkpoints.
const failedMessages = 3000

// failedShare is a share in whose memory failedMessages wait after a nack, for 20 s and one millisecond more each: one
// of every n that were handed out, from the first on. The others are acked.
func failedShare(b *testing.B, n int) (*Group, *Share, time.Time) {
	b.Helper()
	g := NewGroup(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true}.WithDefaults())
	g.mostFailed = failedMessages // more than stay by the rules: what is measured is their cost in memory
	now := time.Unix(1_700_000_000, 0)
	s := g.AddShare(core.ExtentID{}, State{}, now)
	var runs []Run
	for nacked := 0; nacked < failedMessages; {
		if err := s.Offer(records(s.ReadFrom(), failedBatch, nil), now); err != nil {
			b.Fatal(err)
		}
		if runs = g.Take(1, Credit{Messages: failedBatch, Bytes: 1 << 20}, now, runs[:0]); len(runs) == 0 {
			b.Fatalf("nothing is handed out after %d failed: %+v", nacked, s.Depth())
		}
		for _, run := range runs {
			for seq := run.Base; seq < run.Base+core.Seq(run.Count); seq++ {
				if nacked == failedMessages || int(seq-1)%n > 0 {
					s.Ack(seq, 1, run.Attempt, now, nil)
					continue
				}
				if err := s.Nack(seq, run.Attempt, 20*time.Second+time.Duration(nacked)*time.Millisecond, nil, 0, now); err != nil {
					b.Fatal(err)
				}
				nacked++
			}
		}
	}
	if d := s.Depth(); d.Delayed != failedMessages || d.Ready+d.InFlight > 0 {
		b.Fatalf("depth %+v, want %d delayed", d, failedMessages)
	}
	return g, s, now
}

// BenchmarkFailed_TakeAck is the way of one good message beside failed ones that wait: batches of 250, acked one by
// one.
func BenchmarkFailed_TakeAck(b *testing.B) {
	g, s, now := failedShare(b, 2)
	r := records(1, failedBatch, nil)
	var runs []Run
	var bad []Refusal
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += failedBatch {
		r.Base = s.ReadFrom()
		if err := s.Offer(r, now); err != nil {
			b.Fatal(err)
		}
		for left := failedBatch; left > 0; {
			runs = g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, now, runs[:0])
			if len(runs) == 0 {
				b.Fatalf("%d messages are not handed out", left)
			}
			for _, run := range runs {
				left -= int(run.Count)
				for k := range run.Count {
					bad = s.Ack(run.Base+core.Seq(k), 1, run.Attempt, now, bad[:0])
				}
			}
		}
	}
	if len(bad) > 0 {
		b.Fatal(bad)
	}
}

// BenchmarkFailed_Checkpoint is one checkpoint of a share with failed messages that wait, after one good message was
// acked; it reports the bytes of the blob. When one of 20 messages has failed, the blob has no room for all of them.
func BenchmarkFailed_Checkpoint(b *testing.B) {
	for _, n := range []int{2, 20} {
		b.Run(fmt.Sprintf("one of %d", n), func(b *testing.B) {
			_, s, now := failedShare(b, n)
			var blob []byte
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				s.AckProven(s.ReadFrom(), now)
				var token uint64
				blob, token = s.Checkpoint(blob[:0], false, now)
				s.Saved(token)
			}
			b.ReportMetric(float64(len(blob)), "blob-B")
		})
	}
}

// BenchmarkFailed_Retry is one more attempt of each failed message in turn: its time comes, a checkpoint counts the
// attempt, it is taken, and nacked for as long as all of them wait.
func BenchmarkFailed_Retry(b *testing.B) {
	g, s, now := failedShare(b, 2)
	const wait = failedMessages * time.Millisecond
	now = now.Add(20 * time.Second)
	var blob []byte
	var runs []Run
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; {
		now = now.Add(failedBatch * time.Millisecond)
		g.Tick(now)
		var token uint64
		blob, token = s.Checkpoint(blob[:0], false, now)
		s.Saved(token)
		runs = g.Take(1, Credit{Messages: 2 * failedBatch, Bytes: 1 << 20}, now, runs[:0])
		if len(runs) == 0 {
			b.Fatal("nothing comes again")
		}
		for _, run := range runs {
			for k := range run.Count {
				if err := s.Nack(run.Base+core.Seq(k), run.Attempt, wait, nil, 0, now); err != nil {
					b.Fatal(err)
				}
				i++
			}
		}
	}
}
