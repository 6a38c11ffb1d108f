package writer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// harness is a writer with replicas and a controller made of memory.
type harness struct {
	t        *testing.T
	w        *Writer
	replicas []*fakeReplica
	mu       sync.Mutex
	again    []Chunk
	full     int
	ended    int
	failed   core.HostID
	sealed   int
	floor    core.Seq
	reason   string
	due      time.Time
	seal     func(floor core.Seq) (core.Seq, int, error)
	wg       sync.WaitGroup
	cancel   context.CancelFunc
}

type fakeReplica struct {
	mu      sync.Mutex
	batches []wire.BatchHeader
	records [][]byte // of batches
	commits []core.Seq
	closed  bool
	err     error
}

func (r *fakeReplica) Append(h wire.BatchHeader, records []byte, _ core.Seq, release func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	release()
	if r.err != nil {
		return r.err
	}
	r.batches, r.records = append(r.batches, h), append(r.records, records)
	return nil
}

func (r *fakeReplica) Commit(c core.Seq) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits = append(r.commits, c)
}

func (r *fakeReplica) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

func newHarness(t *testing.T, replicas int) *harness {
	t.Helper()
	b := &harness{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.seal = func(floor core.Seq) (core.Seq, int, error) { return floor, replicas, nil }
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}}
	for i := range replicas {
		e.Replicas = append(e.Replicas, core.HostID(rune('a'+i)))
	}
	b.w = New(e, Limits{PublishDeadline: 3 * time.Second, RollBytes: 1 << 20}, Env{
		Log: slog.New(slog.DiscardHandler),
		Seal: func(_ context.Context, _ core.Extent, end End) (core.Seq, int, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.floor, b.reason, b.due = end.Floor, end.Reason, end.Due
			return b.seal(end.Floor)
		},
		Again: func(c []Chunk) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.again = append(b.again, c...)
		},
		Tell: func(w *Writer) { w.Tell() },
		Full: func(*Writer) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.full++
		},
		Ended: func(_ *Writer, store core.HostID, _ error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ended++
			b.failed = store
		},
		Sealed: func(*Writer, string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.sealed++
		},
		Go:  func(f func(context.Context)) bool { b.wg.Go(func() { f(ctx) }); return true },
		Now: time.Now, Stamp: func(t time.Time) time.Time { return t },
	})
	return b
}

func (b *harness) start() {
	var rs []Replica
	for range b.w.Extent.Replicas {
		r := &fakeReplica{}
		b.replicas = append(b.replicas, r)
		rs = append(rs, r)
	}
	b.w.Start(rs)
}

// settled joins the writer's goroutines.
func (b *harness) settled() {
	b.wg.Wait()
	b.cancel()
}

// publisher collects answers.
type publisher struct {
	mu   sync.Mutex
	got  map[uint64]Outcome
	gone bool
}

func (p *publisher) Answer(c Chunk, o Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.got == nil {
		p.got = make(map[uint64]Outcome)
	}
	if _, twice := p.got[c.First]; twice {
		panic("a chunk was answered twice")
	}
	p.got[c.First] = o
}

func (p *publisher) Gone() bool { return p.gone }

func (p *publisher) answers() map[uint64]Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[uint64]Outcome, len(p.got))
	for k, v := range p.got {
		out[k] = v
	}
	return out
}

type noHold struct{}

func (noHold) Retain()  {}
func (noHold) Release() {}

func chunk(t *testing.T, p *publisher, first uint64, count int) Chunk {
	t.Helper()
	var b []byte
	for range count {
		var err error
		if b, err = wire.AppendRecord(b, &wire.Record{Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	return Chunk{Records: b, Hold: noHold{}, Count: uint32(count), First: first, Arrived: time.Now(), From: p}
}
