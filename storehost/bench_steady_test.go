//go:build unix

package storehost

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// BenchmarkSteady sends 10,000 messages of 1 KiB a second over one link, spread over one extent or many, as one input
// host does, and measures what a message costs of the processors, the sender's side included: cpu-ns/msg is to be about
// the same.
func BenchmarkSteady(b *testing.B) {
	for _, extents := range []int{1, 1000} {
		b.Run(fmt.Sprintf("extents=%d", extents), func(b *testing.B) { benchSteady(b, extents, false) })
		b.Run(fmt.Sprintf("read/extents=%d", extents), func(b *testing.B) { benchSteady(b, extents, true) })
	}
}

const (
	steadyTick = time.Millisecond
	steadySize = 1 << 10
	steadyRate = 10 // messages in a tick
)

func benchSteady(b *testing.B, extents int, read bool) {
	s := startStore(b, "s1")
	l := s.dial()
	streams := make([]*steadyStream, extents)
	reader := s.dial()
	for i := range streams {
		e := extent("s1")
		streams[i] = openSteady(l, e)
		if read {
			streams[i].commit = l.mux.Conn
			reader.readSteady(e)
		}
	}
	perTick := min(extents, steadyRate)
	count := steadyRate / perTick
	var frames []byte
	answers.Store(0)
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
		<-time.After(time.Until(start.Add(time.Duration(ticks) * steadyTick)))
	}
	for _, st := range streams {
		for core.Seq(st.acked.Load()) < st.w.Last {
			runtime.Gosched()
		}
	}
	b.ReportMetric(float64(answers.Swap(0))/float64(ticks), "answers/tick")
	messages := float64(ticks * steadyRate)
	b.ReportMetric(float64(processorTime(b)-cpu)/messages, "cpu-ns/msg")
	b.ReportMetric(float64(mallocsSince(mallocs))/messages, "mallocs/msg")
	b.ReportMetric(messages/time.Since(start).Seconds(), "msg/s")
	b.ReportMetric(0, "ns/op")
}

// answers counts the messages that came.
var answers atomic.Int64

// steadyStream takes acks without a goroutine of its own.
type steadyStream struct {
	id     uint32
	w      extentlogtest.Writer
	opened chan struct{}
	acked  atomic.Uint64
	commit *ws.Conn // told what is committed as soon as it is acknowledged; nil: with the next batch
}

func openSteady(l *link, e core.Extent) *steadyStream {
	st := &steadyStream{opened: make(chan struct{}, 1)}
	var err error
	st.id, err = l.mux.Open(st)
	must(l.t, err)
	s := &stream{l: l, id: st.id}
	s.sendProto(wire.TypeOpenAppend, openRequest(e))
	<-st.opened
	return st
}

func (st *steadyStream) HandleFrame(f wire.Frame, m *ws.Message) {
	if len(f.Body) > 0 && &f.Body[0] == &m.Bytes[wire.FrameHeaderLen] {
		answers.Add(1)
	}
	switch f.Type {
	case wire.TypeOpened:
		st.opened <- struct{}{}
	case wire.TypeAppendAck:
		if v, err := wire.DecodePosition(f.Body); err == nil {
			st.acked.Store(v)
			if st.commit != nil {
				var frame [wire.FrameHeaderLen + 8]byte
				b := wire.AppendFrameHeader(frame[:0], wire.TypeCommitted, 0, st.id, 8)
				st.commit.Post(wire.AppendPosition(b, v))
			}
		}
	default:
		panic(describe(f))
	}
}

func (st *steadyStream) Closed(error) {}

// discarding is a reader that takes everything.
type discarding struct{}

func (discarding) HandleFrame(wire.Frame, *ws.Message) {}
func (discarding) Closed(error)                        {}

func (l *link) readSteady(e core.Extent) {
	id, err := l.mux.Open(discarding{})
	must(l.t, err)
	s := &stream{l: l, id: id}
	s.sendProto(wire.TypeOpenRead, &pb.OpenRead{Extent: convert.ExtentToProto(e), From: 1, Credit: maxCredit})
}

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
