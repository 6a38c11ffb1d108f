package main

import (
	"errors"
	"testing"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// wire measures the codec at 1 KiB.
func (r *rig) wire() error {
	record := wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, Payload: measure.Payload(1024)}
	encoded, err := wire.AppendRecord(nil, &record)
	if err != nil {
		return err
	}
	var encode, decode []float64
	allocs := 0.0
	for range r.pairs {
		e := testing.Benchmark(func(b *testing.B) {
			dst := make([]byte, 0, len(encoded))
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				if _, err := wire.AppendRecord(dst, &record); err != nil {
					b.Fatal(err)
				}
			}
		})
		d := testing.Benchmark(func(b *testing.B) {
			var into wire.Record
			b.SetBytes(int64(len(encoded)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.DecodeRecord(encoded, &into); err != nil {
					b.Fatal(err)
				}
			}
		})
		if e.N == 0 || d.N == 0 {
			return errors.New("a benchmark of the codec failed")
		}
		encode, decode = append(encode, throughput(e)), append(decode, throughput(d))
		allocs = max(allocs, float64(d.AllocsPerOp()))
	}
	r.report.atLeast("wire: encode with CRC, 1 KiB", median(encode), 2, "GB/s")
	r.report.info("wire: decode with CRC, 1 KiB", median(decode), "GB/s", "")
	r.report.atMost("wire: allocations of a record's decode", allocs, 0, "")
	return nil
}

// throughput in GB/s.
func throughput(b testing.BenchmarkResult) float64 {
	return float64(b.Bytes) * float64(b.N) / b.T.Seconds() / 1e9
}
