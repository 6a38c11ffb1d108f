package cli

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are 1/32 wide. Not safe for concurrent use.
type histogram struct {
	buckets [64 * histogramSteps]int64
	count   int64
}

const (
	histogramBits  = 5
	histogramSteps = 1 << histogramBits
)

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(uint64(max(d, 0)))]++
	h.count++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
}

// quantile is an upper bound, at most 1/32 too high, of the q-th part of the durations; 0 when there are none.
func (h *histogram) quantile(q float64) time.Duration {
	want := int64(q * float64(h.count))
	var seen int64
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen > want || seen == h.count && n > 0 {
			return time.Duration(bucketEnd(i))
		}
	}
	return 0
}

// bucketOf is v itself below 32, else its power of two and the five bits after its first.
func bucketOf(v uint64) int {
	if v < histogramSteps {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - histogramBits
	return (shift+1)<<histogramBits + int(v>>shift) - histogramSteps
}

// bucketEnd is the largest value of a bucket.
func bucketEnd(i int) uint64 {
	if i < histogramSteps {
		return uint64(i)
	}
	shift := i>>histogramBits - 1
	low := uint64(i&(histogramSteps-1) + histogramSteps)
	return (low+1)<<shift - 1
}
