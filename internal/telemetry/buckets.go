package telemetry

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Buckets of histograms. Each call makes a new slice.

// LatencyBuckets are seconds: 100 µs to 13 s, each twice the one before. For what a disk or a network answers.
func LatencyBuckets() []float64 { return prometheus.ExponentialBuckets(100e-6, 2, 18) }

// FineBuckets are seconds: 1 ms to 16 s, each √2 times the one before. For what has a bound that is measured.
func FineBuckets() []float64 { return prometheus.ExponentialBuckets(1e-3, math.Sqrt2, 29) }

// WaitBuckets are seconds: 10 ms to 8 days, each four times the one before. For what waits on purpose.
func WaitBuckets() []float64 { return prometheus.ExponentialBuckets(10e-3, 4, 14) }

// CountBuckets are numbers of things: 1 to 65,536, each four times the one before.
func CountBuckets() []float64 { return prometheus.ExponentialBuckets(1, 4, 9) }
