// Package quota owns the rules of limits: how a rate is kept, how hosts share one budget, and how long a part of it is
// valid. It has no clock.
package quota

import (
	"math"
	"sync/atomic"
	"time"
)

// Burst is how long a bucket saves up what is not used.
const Burst = time.Second

// Bucket keeps a rate. Each amount taken is a debt, which is paid as time passes. The bucket is open while the debt is
// less than Burst, and the amount taken then is charged as a whole: a message larger than the bucket passes, and the
// messages after it wait. In any time t at most rate × (t + Burst) passes, plus the last amount of each concurrent
// caller.
//
// The zero Bucket lets nothing pass that is worth the name; Set it first. Safe for concurrent use, without a lock.
type Bucket struct {
	cost atomic.Uint64 // of one, in nanoseconds: the bits of a float64
	paid atomic.Int64  // unix ns: when all that was taken will be paid for
	seen atomic.Int64  // unix ns: the clock, as of the last Set
}

// leastRate is what a bucket keeps instead of no rate at all: one in an hour.
const leastRate = 1.0 / 3600

// Set changes the rate per second. The debt stays, also when the clock was set back since the last Set: callers must
// not wait for the hours that the clock lost.
func (b *Bucket) Set(rate float64, now time.Time) {
	rate = max(rate, leastRate)
	if math.IsNaN(rate) {
		rate = leastRate
	}
	at := now.UnixNano()
	if back := b.seen.Swap(at) - at; back > 0 {
		b.paid.Add(-back)
	}
	next := float64(time.Second) / rate
	before := math.Float64frombits(b.cost.Swap(math.Float64bits(next)))
	if before == 0 || before == next {
		return
	}
	for {
		paid := b.paid.Load()
		if paid <= at {
			return
		}
		owed := clampOwed(float64(paid-at) / before * next)
		if b.paid.CompareAndSwap(paid, at+owed) {
			return
		}
	}
}

// Wait is how long it stays closed; 0: it is open.
func (b *Bucket) Wait(now time.Time) time.Duration {
	return max(0, time.Duration(b.paid.Load()-now.UnixNano())-Burst+1)
}

// Left is how many it takes now before it closes; 0: it is closed.
func (b *Bucket) Left(now time.Time) int {
	room := int64(Burst) - max(0, b.paid.Load()-now.UnixNano())
	if room <= 0 {
		return 0
	}
	n := float64(room) / math.Float64frombits(b.cost.Load())
	if !(n < math.MaxInt32) {
		return math.MaxInt32
	}
	return max(int(n), 1)
}

// Take charges n, whether it is open or not.
func (b *Bucket) Take(n int, now time.Time) {
	at, price := now.UnixNano(), clampOwed(float64(n)*math.Float64frombits(b.cost.Load()))
	for {
		paid := b.paid.Load()
		if b.paid.CompareAndSwap(paid, at+clampOwed(float64(max(paid-at, 0))+float64(price))) {
			return
		}
	}
}

// mostOwed keeps sums of times from overflowing: whoever owes a day waits for long enough.
const mostOwed = 24 * time.Hour

func clampOwed(ns float64) int64 {
	if !(ns < float64(mostOwed)) { // also NaN, of no cost yet times nothing
		return int64(mostOwed)
	}
	return int64(ns)
}
