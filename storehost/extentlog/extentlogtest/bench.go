package extentlogtest

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// rollAt is where the benchmarks go on in a fresh extent, as input hosts do.
const rollAt = 256 << 20

// RunBench measures an engine opened by open: appends of several batch sizes and depths, readers at the head and
// behind.
func RunBench(b *testing.B, open func(b *testing.B) extentlog.Log) {
	for _, c := range []struct{ record, batch, depth int }{
		{1 << 10, 1 << 10, 1}, {1 << 10, 16 << 10, 4}, {1 << 10, 256 << 10, 1}, {1 << 10, 256 << 10, 8}, {1 << 10, wire.BatchTarget, 8}, {1 << 10, 1 << 20, 8}, {100, 256 << 10, 8},
	} {
		name := fmt.Sprintf("%d=record/%dKiB=batch/%d=depth", c.record, c.batch>>10, c.depth)
		b.Run("Append/"+name, func(b *testing.B) { benchAppend(b, open(b), c.record, c.batch, c.depth, false) })
	}
	b.Run("Tail/1024=record/256KiB=batch/8=depth", func(b *testing.B) { benchAppend(b, open(b), 1<<10, 256<<10, 8, true) })
	b.Run("Timers/100=record/2000=batch/8=depth", func(b *testing.B) { benchTimers(b, open(b), 100, 2000, 8) })
	b.Run("Read/1024=record/256KiB=batch", func(b *testing.B) { benchRead(b, open(b), 1<<10, 256<<10) })
}

// benchAppend keeps depth batches in flight in one extent at a time; a follower reads them if asked.
func benchAppend(b *testing.B, l extentlog.Log, record, batch, depth int, follow bool) {
	window := make(chan error, depth)
	for range depth {
		window <- nil
	}
	count := max(1, batch/(record+16))
	w, written := new(Writer), 0
	e := Extent()
	must(b, l.Open(e))
	var reader *headReader
	if follow {
		reader = followHead(b, l, e.ID)
	}
	b.SetBytes(int64(count * record))
	b.ReportAllocs()
	before := processTime(b)
	for b.Loop() {
		must(b, <-window)
		if written > rollAt && !follow {
			was := e
			e, w, written = Extent(), new(Writer), 0
			must(b, l.Open(e))
			must(b, Remove(l, was, 1))
		}
		bytes := w.Batch(count, record)
		written += len(bytes)
		l.Append(e.ID, bytes, w.Last, func(_ core.Seq, err error) { window <- err })
	}
	for range depth {
		must(b, <-window)
	}
	if reader != nil {
		reader.wait(w.Last)
	}
	b.ReportMetric(float64(b.N*count)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64((processTime(b)-before).Nanoseconds())/float64(b.N*count), "cpu-ns/record")
	must(b, l.Close())
}

// Fill appends so many bytes and removes them again.
func Fill(b *testing.B, l extentlog.Log, bytes int) {
	const size, each = 256 << 10, 16 << 20
	for ; bytes > 0; bytes -= each {
		e, w := Extent(), new(Writer)
		must(b, l.Open(e))
		for range each / size {
			_, err := Append(l, e.ID, w.Batch(1, size), 0)
			must(b, err)
		}
		must(b, Remove(l, e, 1))
	}
}

// timersAtMost is how many records an extent of timers holds.
const timersAtMost = 131_072

// benchTimers keeps depth batches of timers that are due, at random, within one minute in flight in one extent at a
// time.
func benchTimers(b *testing.B, l extentlog.Log, record, count, depth int) {
	window := make(chan error, depth)
	for range depth {
		window <- nil
	}
	w, e := new(Writer), TimerExtent()
	must(b, l.Open(e))
	due, random := make([]int64, count), rand.New(rand.NewPCG(1, 2))
	b.SetBytes(int64(count * record))
	before := processTime(b)
	for b.Loop() {
		must(b, <-window)
		if w.Last > timersAtMost {
			e, w = TimerExtent(), new(Writer)
			must(b, l.Open(e))
		}
		for i := range due {
			due[i] = int64(time.Hour/time.Millisecond) + random.Int64N(int64(time.Minute/time.Millisecond))
		}
		l.Append(e.ID, w.Timers(record, due...), w.Last, func(_ core.Seq, err error) { window <- err })
	}
	for range depth {
		must(b, <-window)
	}
	b.ReportMetric(float64((processTime(b)-before).Nanoseconds())/float64(b.N*count), "cpu-ns/record")
	must(b, l.Close())
}

// processTime is the CPU time of this process.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// headReader reads an extent as it grows.
type headReader struct {
	b    *testing.B
	wake chan struct{}
	seen chan core.Seq
	stop func()
	quit chan struct{}
}

func followHead(b *testing.B, l extentlog.Log, id core.ExtentID) *headReader {
	r := &headReader{b: b, wake: make(chan struct{}, 1), seen: make(chan core.Seq), quit: make(chan struct{})}
	r.stop = l.Follow(id, func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	})
	go r.run(l, id)
	return r
}

func (r *headReader) run(l extentlog.Log, id core.ExtentID) {
	defer close(r.seen)
	next := core.Seq(1)
	for {
		s, err := l.State(id)
		if err != nil {
			return
		}
		for next <= s.Last {
			batches, err := l.Read(id, next, s.Last, 1<<20)
			if err != nil || len(batches) == 0 {
				return
			}
			_, last := span(r.b, batches)
			next = last + 1
		}
		select {
		case <-r.wake:
		case r.seen <- next - 1:
		case <-r.quit:
			return
		}
	}
}

// wait until the reader has read up to last.
func (r *headReader) wait(last core.Seq) {
	for seen := range r.seen {
		if seen == last {
			break
		}
	}
	close(r.quit)
	r.stop()
}

func benchRead(b *testing.B, l extentlog.Log, record, batch int) {
	e, w := Extent(), new(Writer)
	must(b, l.Open(e))
	count := batch / (record + 16)
	for range (64 << 20) / batch {
		_, err := Append(l, e.ID, w.Batch(count, record), w.Last)
		must(b, err)
	}
	s, err := l.State(e.ID)
	must(b, err)
	b.SetBytes(int64(s.Bytes))
	for b.Loop() {
		for next := core.Seq(1); next <= w.Last; {
			batches, err := l.Read(e.ID, next, w.Last, 1<<20)
			must(b, err)
			_, last := span(b, batches)
			next = last + 1
		}
	}
	must(b, l.Close())
}
