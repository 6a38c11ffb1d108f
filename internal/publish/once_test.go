package publish

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

// TestOnce_UnknownAtOnce has a record stored, or perhaps not, without an answer that says so: it is not sent again, and
// its owner knows soon.
func TestOnce_UnknownAtOnce(t *testing.T) {
	for name, answer := range map[string]func(*publishtest.Batch){
		"connection lost": func(b *publishtest.Batch) { b.Store(); b.Cut() },
		"host is not sure": func(b *publishtest.Batch) {
			b.Store()
			b.Answer(wire.AckRun{First: b.First, Count: uint32(b.Count), Status: wire.AckUnknown, Code: core.CodeUnavailable})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
				if n.Add(1) == 1 {
					answer(b)
					return
				}
				b.Ack()
			}})
			r := start(t, Config{Once: true}, h)
			r.append(t, "a", time.Hour)
			r.flush(t)
			if err := r.got["a"]; !errors.Is(err, core.ErrUnknownOutcome) {
				t.Errorf("a: %v, want unknown", err)
			}
			r.append(t, "b", 0)
			r.flush(t)
			if err := r.got["b"]; err != nil {
				t.Errorf("b: %v", err)
			}
			if got := h.Stored(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("stored %q, want each once", got)
			}
		})
	}
}

// TestOnce_RefusedIsSentAgain: what the host says it did not store is sent again, also out of a batch of which another
// part is unknown.
func TestOnce_RefusedIsSentAgain(t *testing.T) {
	gathered := make(chan struct{})
	var n atomic.Int32
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		if n.Add(1) > 1 {
			b.Ack()
			return
		}
		b.Answer(
			wire.AckRun{First: 1, Count: 1, Extent: h.Extent, Base: 1000},
			wire.AckRun{First: 2, Count: 1, Status: wire.AckUnknown, Code: core.CodeUnavailable},
			wire.AckRun{First: 3, Count: 1, Status: wire.AckRefused, Code: core.CodeUnavailable})
	}
	publishtest.Start(t, h)
	r := start(t, Config{Once: true, Route: func(context.Context) ([]Host, error) {
		<-gathered
		return []Host{{ID: "in0", Address: h.Addr()}}, nil
	}})
	for _, s := range []string{"stored", "unsure", "refused", "silent"} {
		r.append(t, s, 0)
	}
	close(gathered)
	eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.got) == 2 })
	h.Cut() // of the last one nobody says anything
	r.flush(t)
	for s, want := range map[string]error{"stored": nil, "unsure": core.ErrUnknownOutcome, "refused": nil, "silent": core.ErrUnknownOutcome} {
		if err := r.got[s]; !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", s, err, want)
		}
	}
	if got := h.Stored(); !slices.Equal(got, []string{"refused"}) {
		t.Errorf("sent again %q, want what was refused", got)
	}
}

// TestOnce_ContextEndsTheRecord appends with a context whose deadline comes before the record's: nothing is sent after
// it.
func TestOnce_ContextEndsTheRecord(t *testing.T) {
	opened := make(chan struct{})
	h := publishtest.Start(t, &publishtest.Host{})
	r := start(t, Config{Once: true, Route: func(ctx context.Context) ([]Host, error) {
		<-opened
		return []Host{{ID: "in0", Address: h.Addr()}}, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	told := make(chan error, 1)
	err := r.Append(ctx, &wire.Record{Payload: []byte("late")}, time.Hour, DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) { told <- err }))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unavailable: it was never sent", err)
	}
	close(opened)
	r.append(t, "in time", 0)
	r.flush(t)
	if got := h.Stored(); !slices.Equal(got, []string{"in time"}) {
		t.Errorf("stored %q", got)
	}
}
