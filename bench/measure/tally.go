package measure

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Tally is what several producers measured together. The zero Tally is ready; safe for concurrent use.
type Tally struct {
	acked, failed atomic.Int64
	counting      atomic.Bool // the warm-up is over
	mu            struct {
		sync.Mutex
		latencies Samples
		delivered Samples
		gap       time.Duration // longest time without an acknowledgement
		last      time.Time
	}
}

// Answered notes one outcome of a message sent then. Its time counts if it is a sample.
func (t *Tally) Answered(sent time.Time, sample bool, err error) {
	if err != nil {
		t.failed.Add(1)
		return
	}
	t.acked.Add(1)
	if !sample || !t.counting.Load() {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.latencies = append(t.mu.latencies, now.Sub(sent))
	if !t.mu.last.IsZero() {
		t.mu.gap = max(t.mu.gap, now.Sub(t.mu.last))
	}
	t.mu.last = now
}

// Delivered notes that a consumer has a message that was due to be sent then.
func (t *Tally) Delivered(due time.Time) {
	if !t.counting.Load() {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.delivered = append(t.mu.delivered, now.Sub(due))
}

// Over runs f until the job's time has passed, and answers what was acknowledged after the warm-up.
func (t *Tally) Over(j Job, f func(ctx context.Context) error) (Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Warm+j.For)
	defer cancel()
	var before int64
	var began time.Time
	warm := time.AfterFunc(j.Warm, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		before, began = t.acked.Load(), time.Now()
		t.counting.Store(true)
	})
	defer warm.Stop()
	var late atomic.Int64
	last := time.AfterFunc(j.Warm+j.For*3/4, func() { late.Store(t.acked.Load()) })
	defer last.Stop()
	failed := make(chan error, 1)
	go func() { failed <- f(ctx) }()
	<-ctx.Done()
	t.mu.Lock()
	o := Outcome{Messages: t.acked.Load() - before, Seconds: time.Since(began).Seconds()}
	o.LastQuarter = float64(before+o.Messages-late.Load()) / (j.For.Seconds() / 4)
	t.counting.Store(false)
	if t.mu.last.IsZero() {
		t.mu.last = began
	}
	t.mu.gap = max(t.mu.gap, time.Since(t.mu.last))
	t.mu.Unlock()
	if err := <-failed; err != nil {
		return o, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o.Total, o.Errors = t.acked.Load(), t.failed.Load()
	o.P50, o.P99, o.Gap = t.mu.latencies.Quantile(0.5), t.mu.latencies.Quantile(0.99), t.mu.gap.Seconds()
	o.Deliver50, o.Deliver99 = t.mu.delivered.Quantile(0.5), t.mu.delivered.Quantile(0.99)
	o.Delivered = int64(len(t.mu.delivered))
	return o, nil
}

// Pace calls send at a rate, with the number of each message and when it was due, until ctx ends. Messages that a slow
// send delayed follow at once.
func Pace(ctx context.Context, rate int, send func(n int, due time.Time) error) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began, n := time.Now(), 0
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		for ; n < int(time.Since(began).Seconds()*float64(rate)); n++ {
			if err := send(n, began.Add(time.Duration(float64(n)/float64(rate)*1e9))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Samples are latencies. Not safe for concurrent use.
type Samples []time.Duration

// Quantile in ms; 0 without samples.
func (s Samples) Quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return float64(sorted[int(q*float64(len(sorted)-1))].Microseconds()) / 1e3
}

// Stamp writes into a payload when it was due; Stamped reads it.
func Stamp(payload []byte, due time.Time) {
	binary.LittleEndian.PutUint64(payload, uint64(due.UnixNano()))
}

// Stamped is the time in a payload, which has at least 8 bytes.
func Stamped(payload []byte) time.Time {
	return time.Unix(0, int64(binary.LittleEndian.Uint64(payload)))
}

// Payload is text that does not repeat within a message.
func Payload(size int) []byte {
	b := make([]byte, 0, size+16)
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, "%x,", uint32(i)*2654435761)
	}
	return b[:size]
}
