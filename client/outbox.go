package client

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// outbox gathers what a stream has to tell its host: what comes while a write is under way goes together. What the stream was
// given bounds it.
type outbox struct {
	stream uint32
	grant  wire.Credit // when this much was taken it is granted again
	budget bool        // grants messages, then; bytes are granted here
	wake   chan struct{}
	mu     struct {
		sync.Mutex
		over    bool
		busy    bool   // the sender is awake or was woken
		frames  []byte // nacks, rejects, extends: before the acks
		acks    []settledRun
		returns []settledRun
		back    wire.Credit // taken from the inbox, not granted again
		stopped bool        // no more credit
		flushes []chan struct{}
	}
}

type settledRun struct {
	handle uint32
	wire.SeqRun
}

// maxGrant keeps a consumer going whose limit is above what a host is ready to have under way.
var maxGrant = wire.Credit{Messages: 64 << 10, Bytes: 4 << 20}

// newOutbox grants half of the limit again when it was taken.
func newOutbox(limit wire.Credit) *outbox {
	return &outbox{wake: make(chan struct{}, 1), grant: wire.Credit{
		Messages: max(1, min(limit.Messages/2, maxGrant.Messages)), Bytes: max(1, min(limit.Bytes/2, maxGrant.Bytes)),
	}}
}

// change applies f under the mutex and wakes the sender. It fails if the stream was lost.
func (o *outbox) change(f func()) error {
	o.mu.Lock()
	if o.mu.over {
		o.mu.Unlock()
		return core.Errorf(core.CodeStale, "the connection of the delivery was lost; the message comes again")
	}
	f()
	wake := !o.mu.busy
	o.mu.busy = true
	o.mu.Unlock()
	if wake {
		signal(o.wake)
	}
	return nil
}

func (o *outbox) ack(handle uint32, seq core.Seq, attempt uint16) error {
	return o.change(func() { o.mu.acks = appendRun(o.mu.acks, handle, seq, attempt) })
}

// giveBack returns a delivery; a host that lost the stream has it back already.
func (o *outbox) giveBack(handle uint32, seq core.Seq, attempt uint16) error {
	return o.change(func() { o.mu.returns = appendRun(o.mu.returns, handle, seq, attempt) })
}

// frame sends a frame whose body is appended by body.
func (o *outbox) frame(t wire.FrameType, body func([]byte) []byte) error {
	return o.flagged(t, 0, body)
}

func (o *outbox) flagged(t wire.FrameType, flags uint16, body func([]byte) []byte) error {
	return o.change(func() {
		var at int
		o.mu.frames, at = wire.BeginFrame(o.mu.frames, t, flags, o.stream)
		o.mu.frames = body(o.mu.frames)
		wire.EndFrame(o.mu.frames, at)
	})
}

// isStep reports whether so much is worth counting: credit is granted in steps eight times as large.
func (o *outbox) isStep(t taken) bool {
	return uint32(t.messages) >= max(1, o.grant.Messages/8) || uint64(t.bytes) >= max(1, o.grant.Bytes/8)
}

// taken counts deliveries that left the inbox. When it is due they are granted again.
func (o *outbox) taken(messages, bytes int) {
	if o.budget {
		messages = 0
	}
	o.mu.Lock()
	o.mu.back.Messages += uint32(messages)
	o.mu.back.Bytes += uint64(bytes)
	wake := o.creditDueLocked() && !o.mu.busy && !o.mu.over
	if wake {
		o.mu.busy = true
	}
	o.mu.Unlock()
	if wake {
		signal(o.wake)
	}
}

func (o *outbox) creditDueLocked() bool {
	return !o.mu.stopped && (o.mu.back.Messages >= o.grant.Messages || o.mu.back.Bytes >= o.grant.Bytes)
}

// stopCredit grants no more; resumeCredit goes on.
func (o *outbox) stopCredit() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.stopped = true
}

func (o *outbox) resumeCredit() {
	o.mu.Lock()
	o.mu.stopped = false
	o.mu.Unlock()
	o.taken(0, 0)
}

// end refuses everything from now on.
func (o *outbox) end() {
	o.mu.Lock()
	o.mu.over = true
	flushes := o.mu.flushes
	o.mu.flushes = nil
	o.mu.Unlock()
	for _, f := range flushes {
		close(f)
	}
}

// flush waits until all of it has been written, or the stream was lost.
func (o *outbox) flush(ctx context.Context) error {
	o.mu.Lock()
	if o.mu.over || !o.mu.busy {
		o.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	o.mu.flushes = append(o.mu.flushes, done)
	o.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take encodes all that waits into dst. Nothing: the sender is to sleep, and flushes that waited are over.
func (o *outbox) take(dst []byte) []byte {
	o.mu.Lock()
	dst = append(dst, o.mu.frames...)
	o.mu.frames = o.mu.frames[:0]
	dst = appendSettled(dst, wire.TypeAck, o.stream, o.mu.acks)
	dst = appendSettled(dst, wire.TypeReturn, o.stream, o.mu.returns)
	o.mu.acks, o.mu.returns = o.mu.acks[:0], o.mu.returns[:0]
	if o.creditDueLocked() && o.mu.back != (wire.Credit{}) {
		var body [12]byte
		dst = wire.AppendFrame(dst, wire.TypeConsumeCredit, o.stream, o.mu.back.Append(body[:0]))
		o.mu.back = wire.Credit{}
	}
	var flushes []chan struct{}
	if len(dst) == 0 {
		o.mu.busy = false
		flushes, o.mu.flushes = o.mu.flushes, nil
	}
	o.mu.Unlock()
	for _, f := range flushes {
		close(f)
	}
	return dst
}

// appendRun adds a seq to runs; in order it costs nothing.
func appendRun(runs []settledRun, handle uint32, seq core.Seq, attempt uint16) []settledRun {
	if n := len(runs); n > 0 && runs[n-1].follows(handle, seq, attempt) {
		runs[n-1].Count++
		return runs
	}
	return append(runs, settledRun{handle, wire.SeqRun{Base: seq, Count: 1, Attempt: attempt}})
}

// follows reports whether the seq continues the run.
func (r *settledRun) follows(handle uint32, seq core.Seq, attempt uint16) bool {
	return r.handle == handle && r.Attempt == attempt && r.Base+core.Seq(r.Count) == seq
}

// appendSettled encodes runs, sorted and joined, a frame for each handle.
func appendSettled(dst []byte, t wire.FrameType, stream uint32, runs []settledRun) []byte {
	slices.SortFunc(runs, func(a, b settledRun) int {
		return cmp.Or(cmp.Compare(a.handle, b.handle), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Base, b.Base))
	})
	var body wire.Settled
	for i, r := range runs {
		if i == 0 || runs[i-1].handle != r.handle {
			body = wire.Settled{Handle: r.handle, Runs: body.Runs[:0]}
		}
		if n := len(body.Runs); n > 0 && body.Runs[n-1].Attempt == r.Attempt && body.Runs[n-1].Base+core.Seq(body.Runs[n-1].Count) == r.Base {
			body.Runs[n-1].Count += r.Count
		} else {
			body.Runs = append(body.Runs, r.SeqRun)
		}
		if i == len(runs)-1 || runs[i+1].handle != r.handle {
			var at int
			dst, at = wire.BeginFrame(dst, t, 0, stream)
			dst = body.Append(dst)
			wire.EndFrame(dst, at)
		}
	}
	return dst
}
