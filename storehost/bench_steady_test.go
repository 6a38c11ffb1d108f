//go:build unix

package storehost

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// BenchmarkSteady sends 10,000 messages of 1 KiB a second over one link, spread over one extent or many, as one input host does, and
// measures what a message costs of the processors, the sender's side included: cpu-ns/msg is to be about the same.
func BenchmarkSteady(b *testing.B) {
	for _, extents := range []int{1, 1000} {
		b.Run(fmt.Sprintf("extents=%d", extents), func(b *testing.B) { benchSteady(b, extents) })
	}
}

const (
	steadyTick = time.Millisecond
	steadySize = 1 << 10
	steadyRate = 10 // messages in a tick
)

func benchSteady(b *testing.B, extents int) {
	s := startStore(b, "s1")
	l := s.dial()
	streams := make([]*steadyStream, extents)
	for i := range streams {
		streams[i] = openSteady(l)
	}
	perTick := min(extents, steadyRate)
	count := steadyRate / perTick
	var frames []byte
	cpu, mallocs, next := processorTime(b), mallocs(), 0
	start := time.Now()
	ticks := 0
	for b.Loop() {
		frames = frames[:0]
		for range perTick {
			st := streams[next%extents]
			next++
			batch := st.w.Batch(count, steadySize)
			frames = wire.AppendAppendHead(frames, st.id, core.Seq(st.acked.Load()), len(batch))
			frames = append(frames, batch...)
		}
		must(b, l.mux.Conn.Send(b.Context(), frames))
		ticks++
		time.Sleep(time.Until(start.Add(time.Duration(ticks) * steadyTick)))
	}
	for _, st := range streams {
		for core.Seq(st.acked.Load()) < st.w.Last {
			time.Sleep(steadyTick)
		}
	}
	messages := float64(ticks * steadyRate)
	b.ReportMetric(float64(processorTime(b)-cpu)/messages, "cpu-ns/msg")
	b.ReportMetric(float64(mallocsSince(mallocs))/messages, "mallocs/msg")
	b.ReportMetric(messages/time.Since(start).Seconds(), "msg/s")
	b.ReportMetric(0, "ns/op")
}

// steadyStream takes acks without a goroutine of its own.
type steadyStream struct {
	id     uint32
	w      extentlogtest.Writer
	opened chan struct{}
	acked  atomic.Uint64
}

func openSteady(l *link) *steadyStream {
	st := &steadyStream{opened: make(chan struct{}, 1)}
	var err error
	st.id, err = l.mux.Open(st)
	must(l.t, err)
	s := &stream{l: l, id: st.id}
	s.sendProto(wire.TypeOpenAppend, openRequest(extent("s1")))
	<-st.opened
	return st
}

func (st *steadyStream) HandleFrame(f wire.Frame, _ *ws.Message) {
	switch f.Type {
	case wire.TypeOpened:
		st.opened <- struct{}{}
	case wire.TypeAppendAck:
		if v, err := wire.DecodePosition(f.Body); err == nil {
			st.acked.Store(v)
		}
	default:
		panic(describe(f))
	}
}

func (st *steadyStream) Closed(error) {}

// processorTime is what the process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func mallocsSince(then uint64) uint64 { return mallocs() - then }
