package publish

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core/quota"
)

// greedy is a publisher that always has more to send, and the pause that its host wants.
type greedy struct {
	pacing
	paused int64
	sentAt []int64 // of batches that are not answered
}

// flood has greedy publishers send to a host with a limit, for so long, and answers what is stored in each millisecond,
// and what was refused.
func flood(publishers int, limit float64, trip, pause, length time.Duration, paced bool) (stored []int, refused int) {
	const window = 1 << 20
	begin := time.Unix(1_700_000_000, 0)
	var bucket quota.Bucket
	bucket.Set(limit, begin)
	all := make([]greedy, publishers)
	for at := time.Duration(0); at < length; at += time.Millisecond {
		now, sum := int64(at)+1, 0
		for i := range all {
			g := &all[i]
			for now >= g.paused && now >= g.next {
				size := batchTarget
				if paced {
					size = g.target()
				}
				for len(g.sentAt) > 0 && now-g.sentAt[0] >= int64(trip) {
					g.sentAt = g.sentAt[1:]
				}
				if (len(g.sentAt)+1)*size > window {
					break
				}
				g.sentAt = append(g.sentAt, now)
				if paced {
					g.sent(now, size)
				}
				pass := min(size, bucket.Left(begin.Add(at)))
				bucket.Take(pass, begin.Add(at))
				sum += pass
				g.stored += pass
				if pass < size {
					refused += size - pass
					wait := max(pause, bucket.Wait(begin.Add(at)))
					g.paused = now + int64(wait)
					if paced {
						g.throttled(now, wait)
					}
				}
			}
		}
		stored = append(stored, sum)
	}
	return stored, refused
}

// most is the largest sum of so many that follow each other.
func most(of []int, together int) (largest, all int) {
	sum := 0
	for i, n := range of {
		sum += n
		all += n
		if i >= together {
			sum -= of[i-together]
		}
		largest = max(largest, sum)
	}
	return largest, all
}

// Publishers over a limit use all of it, evenly, and send little to be refused.
func TestPacing_SpreadsWhatALimitLetsThrough(t *testing.T) {
	const limit, together = 40e6, 20 // in 20 ms it lets through 0.8 MB
	count := func(paced bool) (largest, all, refused int) {
		stored, refused := flood(4, limit, 2*time.Millisecond, 150*time.Millisecond, 12*time.Second, paced)
		largest, all = most(stored[2000:], together) // the first second is what the limit has saved up
		return largest, all, refused
	}
	burst, before, wasted := count(false)
	largest, all, refused := count(true)
	t.Logf("within %d ms at most %d bytes, %d without a pace; %d bytes stored, %d without; %d refused, %d without", together, largest, burst, all, before, refused, wasted)
	if 2*largest > burst {
		t.Errorf("within %d ms at most %d bytes, %d without a pace", together, largest, burst)
	}
	if float64(all) < 0.97*limit*10 {
		t.Errorf("%d bytes were stored; the limit lets %d through", all, int(limit*10))
	}
	if refused > wasted/2 {
		t.Errorf("%d bytes were sent to be refused, %d without a pace", refused, wasted)
	}
}

// With any limits, round trips and pauses, a pace leaves little of a limit unused.
func TestPacing_UsesTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		publishers := rapid.IntRange(1, 8).Draw(t, "publishers")
		limit := rapid.Float64Range(1e6, 100e6).Draw(t, "limit")
		trip := time.Duration(rapid.IntRange(1, 5).Draw(t, "trip")) * time.Millisecond
		pause := time.Duration(rapid.IntRange(100, 300).Draw(t, "pause")) * time.Millisecond
		sum := func(paced bool) int {
			stored, _ := flood(publishers, limit, trip, pause, 8*time.Second, paced)
			_, all := most(stored[2000:], 1)
			return all
		}
		if with, without := sum(true), sum(false); float64(with) < 0.9*float64(without) {
			t.Errorf("%d bytes were stored, %d without a pace; the limit is %.0f a second", with, without, limit)
		}
	})
}

// Records that a host refuses for long are not sent at a pace, nor are records long after a refusal.
func TestPacing_Ends(t *testing.T) {
	paced := func() *pacing {
		var p pacing
		p.throttled(1, 100*time.Millisecond)
		p.stored = 1 << 20
		p.throttled(1+int64(200*time.Millisecond), 100*time.Millisecond)
		if p.rate == 0 || p.target() >= batchTarget {
			t.Fatalf("no pace after two refusals: %+v", p)
		}
		return &p
	}
	p := paced()
	p.throttled(int64(300*time.Millisecond), time.Second)
	if p.rate != 0 || p.target() != batchTarget {
		t.Errorf("a pace after a refusal for a second: %+v", p)
	}
	p = paced()
	p.sent(int64(300*time.Millisecond)+int64(paceFor), 1<<20)
	if p.rate != 0 || p.target() != batchTarget {
		t.Errorf("a pace long after the last refusal: %+v", p)
	}
	p = paced()
	p.sent(int64(200*time.Millisecond)+int64(paceFor), 1<<20)
	if p.throttled(int64(201*time.Millisecond)+int64(paceFor), 0); p.rate != 0 || p.next != 0 {
		t.Errorf("a pause without a pace, by the one before: %+v", p)
	}
	p = paced()
	now := int64(210 * time.Millisecond)
	p.sent(now, 1<<30)
	if wait := time.Duration(p.next - now); wait > paceWait {
		t.Errorf("a pause of %s after a batch, however large", wait)
	}
}
