package client

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// outbox gathers the settlements and the credit of a stream: those that arrive during a write go out together. It keeps
// a settlement until the host confirms it. The deliveries of the stream bound its size.
type outbox struct {
	stream uint32
	grant  atomic.Pointer[wire.Credit] // when this much was taken it is granted again
	budget bool                        // grants messages, then; bytes are granted here
	wake   chan struct{}
	mu     struct {
		sync.Mutex
		over    bool
		busy    bool   // the sender is awake or was woken
		frames  []byte // nacks, rejects, extends: before the acks …
		asks    []byte // credit of a consumer with a limit
		acks    []settledRun
		cuts    []cut // … but for the acks in front of a cut: see keepOrderLocked
		ahead   int   // frames since the last cut
		returns []settledRun
		limit   wire.Credit // granted, held and back together
		back    room        // to be granted; below zero: so much more must be taken first
		room    room        // granted, and not delivered
		stopped bool        // no more credit
		flushes []outFlush

		confirms bool        // the host does
		fresh    unconfirmed // sent since the last Confirm
		asked    unconfirmed // before it, while waiting
		waiting  bool        // for the answer to the last Confirm
		position uint64      // of the last Confirm
		askedAt  int64       // when it was sent
	}
	confirmed atomic.Int64 // on the consumer's clock: what was sent until then has been applied; of a host that does not confirm: for ever
}

// room is the credit that a host may still use, or be granted. The bytes go below zero when a message is larger than
// the bytes left.
type room struct{ messages, bytes int64 }

// maxOverrun is the lowest room in bytes: a correct host exceeds its credit by at most one message.
const maxOverrun = 2 * wire.MaxRecord

// outFlush ends with the answer to a Confirm, or if the host gives none when nothing waits to be sent.
type outFlush struct {
	position uint64
	done     chan struct{}
}

type settledRun struct {
	handle uint32
	wire.SeqRun
}

// maxGrant is the largest amount of used credit that waits to be granted again. Without it a consumer would stop whose
// limit is above that of a host.
var maxGrant = wire.Credit{Messages: 64 << 10, Bytes: 4 << 20}

// cut divides what waits: the acks in front of it go out before the frames behind it.
type cut struct{ frames, acks int }

// framesAhead is how many frames may go out before acks that the application gave earlier, or more if there were no
// such acks. It is well below the number of failures in a row that open a breaker.
const framesAhead = 8

// newOutbox makes an outbox that grants nothing until setLimit.
func newOutbox() *outbox {
	o := &outbox{wake: make(chan struct{}, 1)}
	o.grant.Store(&wire.Credit{Messages: 1, Bytes: 1})
	o.confirmed.Store(math.MaxInt64)
	return o
}

// setLimit changes the credit that the host may have, together with the messages that the consumer holds. When half of
// it was used it is granted again. Credit of a larger limit is not taken back: the consumer first uses the excess up,
// and then grants again.
func (o *outbox) setLimit(limit wire.Credit) {
	o.mu.Lock()
	before := o.mu.limit
	o.mu.limit = limit
	o.mu.Unlock()
	if limit == before {
		return
	}
	o.grant.Store(&wire.Credit{
		Messages: max(1, min(limit.Messages/2, maxGrant.Messages)), Bytes: max(1, min(limit.Bytes/2, maxGrant.Bytes)),
	})
	o.taken(int(limit.Messages)-int(before.Messages), int(limit.Bytes)-int(before.Bytes))
}

// change applies f under the mutex and wakes the sender. It reports false if the stream has ended.
func (o *outbox) change(f func()) bool {
	o.mu.Lock()
	if o.mu.over {
		o.mu.Unlock()
		return false
	}
	f()
	wake := !o.mu.busy
	o.mu.busy = true
	o.mu.Unlock()
	if wake {
		signal(o.wake)
	}
	return true
}

func (o *outbox) ack(handle uint32, seq core.Seq, attempt uint16) bool {
	return o.change(func() { o.mu.acks = appendRun(o.mu.acks, o.lastCutLocked().acks, handle, seq, attempt) })
}

func (o *outbox) lastCutLocked() cut {
	if n := len(o.mu.cuts); n > 0 {
		return o.mu.cuts[n-1]
	}
	return cut{}
}

// keepOrderLocked has the acks so far go out before the next frame, once enough frames are ahead of them. The host
// counts failures in a row, and takes a group for broken in which there are many: with all nacks of a write in front,
// a consumer of which every fifth message fails would look like one that handles nothing.
func (o *outbox) keepOrderLocked() {
	if o.mu.ahead >= framesAhead && len(o.mu.acks) > o.lastCutLocked().acks {
		o.mu.cuts, o.mu.ahead = append(o.mu.cuts, cut{len(o.mu.frames), len(o.mu.acks)}), 0
	}
	o.mu.ahead++
}

// giveBack returns a delivery.
func (o *outbox) giveBack(handle uint32, seq core.Seq, attempt uint16) bool {
	return o.change(func() { o.mu.returns = appendRun(o.mu.returns, 0, handle, seq, attempt) })
}

// frame sends a frame whose body is appended by body.
func (o *outbox) frame(t wire.FrameType, body func([]byte) []byte) bool {
	return o.change(func() {
		o.keepOrderLocked()
		var at int
		o.mu.frames, at = wire.BeginFrame(o.mu.frames, t, 0, o.stream)
		o.mu.frames = body(o.mu.frames)
		wire.EndFrame(o.mu.frames, at)
	})
}

// ask sends a frame of credit, which settles nothing.
func (o *outbox) ask(flags uint16, credit wire.Credit) {
	o.change(func() {
		o.grantLocked(credit)
		var at int
		o.mu.asks, at = wire.BeginFrame(o.mu.asks, wire.TypeConsumeCredit, flags, o.stream)
		o.mu.asks = credit.Append(o.mu.asks)
		wire.EndFrame(o.mu.asks, at)
	})
}

// isStep reports whether an amount is large enough to count: credit is granted in steps eight times as large.
func (o *outbox) isStep(t taken) bool {
	grant := o.grant.Load()
	return uint32(t.messages) >= max(1, grant.Messages/8) || uint64(t.bytes) >= max(1, grant.Bytes/8)
}

// taken counts deliveries that left the inbox. When a step is due, their credit is granted again. A negative number
// counts deliveries that the inbox holds already.
func (o *outbox) taken(messages, bytes int) {
	if o.budget {
		messages = 0
	}
	o.mu.Lock()
	o.mu.back.messages += int64(messages)
	o.mu.back.bytes += int64(bytes)
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
	grant := o.grant.Load()
	return !o.mu.stopped && (o.mu.back.messages >= int64(grant.Messages) || o.mu.back.bytes >= int64(grant.Bytes))
}

// dueLocked returns the credit that is due to be granted, and resets it.
func (o *outbox) dueLocked() wire.Credit {
	c := wire.Credit{Messages: uint32(max(0, o.mu.back.messages)), Bytes: uint64(max(0, o.mu.back.bytes))}
	o.mu.back = room{min(0, o.mu.back.messages), min(0, o.mu.back.bytes)}
	o.grantLocked(c)
	return c
}

// grantLocked counts credit before the host can have it.
func (o *outbox) grantLocked(c wire.Credit) {
	o.mu.room.messages += int64(c.Messages)
	o.mu.room.bytes += int64(c.Bytes)
}

// arrived counts deliveries of the host. It reports false if they exceed the granted credit.
func (o *outbox) arrived(messages, bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.room.messages -= int64(messages)
	o.mu.room.bytes -= int64(bytes)
	return o.mu.room.messages >= 0 && o.mu.room.bytes >= -maxOverrun
}

// recalled counts the credit that the host gave back.
func (o *outbox) recalled(messages uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.room.messages = max(0, o.mu.room.messages-int64(messages))
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

// end refuses everything from now on. It returns the settlements that were not sent, and those that were not confirmed,
// with their age. The flushes are to be ended when that is in other hands.
func (o *outbox) end(now int64) (unsent, unsure unconfirmed, waited time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.over = true
	unsent = unconfirmed{o.mu.acks, o.mu.returns, o.mu.frames}
	o.mu.acks, o.mu.returns, o.mu.frames, o.mu.cuts = nil, nil, nil, nil
	unsure = o.mu.asked
	unsure.acks = append(unsure.acks, o.mu.fresh.acks...)
	unsure.returns = append(unsure.returns, o.mu.fresh.returns...)
	unsure.frames = append(unsure.frames, o.mu.fresh.frames...)
	o.mu.asked, o.mu.fresh = unconfirmed{}, unconfirmed{}
	if o.mu.waiting {
		waited = time.Duration(now - o.mu.askedAt)
	}
	return unsent, unsure, waited
}

// endFlushes ends the flushes of a stream that has ended.
func (o *outbox) endFlushes() {
	o.mu.Lock()
	flushes := o.mu.flushes
	o.mu.flushes = nil
	o.mu.Unlock()
	for _, f := range flushes {
		close(f.done)
	}
}

// flush waits until all settlements have been written, and confirmed if the host confirms, or until the stream is lost.
func (o *outbox) flush(ctx context.Context) error {
	o.mu.Lock()
	if o.mu.over || !o.mu.busy && !o.mu.waiting && o.mu.fresh.empty() {
		o.mu.Unlock()
		return nil
	}
	// The next Confirm comes after all that was gathered so far.
	f := outFlush{position: o.mu.position + 1, done: make(chan struct{})}
	o.mu.flushes = append(o.mu.flushes, f)
	wake := !o.mu.busy
	o.mu.busy = true
	o.mu.Unlock()
	if wake {
		signal(o.wake)
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take encodes all waiting settlements and credit into dst. An empty result: the sender has to sleep, for at most pause
// unless that is 0.
func (o *outbox) take(dst []byte, now int64) (out []byte, pause time.Duration) {
	o.mu.Lock()
	dst = append(dst, o.mu.asks...)
	from := cut{}
	for _, to := range append(o.mu.cuts, cut{len(o.mu.frames), len(o.mu.acks)}) {
		dst = append(dst, o.mu.frames[from.frames:to.frames]...)
		dst = appendSettled(dst, wire.TypeAck, o.stream, o.mu.acks[from.acks:to.acks])
		from = to
	}
	dst = appendSettled(dst, wire.TypeReturn, o.stream, o.mu.returns)
	if o.mu.confirms {
		o.mu.fresh.frames = append(o.mu.fresh.frames, o.mu.frames...)
		o.mu.fresh.acks = joinRuns(o.mu.fresh.acks, o.mu.acks)
		o.mu.fresh.returns = joinRuns(o.mu.fresh.returns, o.mu.returns)
	}
	o.mu.asks, o.mu.frames = o.mu.asks[:0], o.mu.frames[:0]
	o.mu.acks, o.mu.returns = o.mu.acks[:0], o.mu.returns[:0]
	o.mu.cuts, o.mu.ahead = o.mu.cuts[:0], 0
	dst, pause = o.confirmLocked(dst, now)
	if o.creditDueLocked() {
		var body [12]byte
		due := o.dueLocked()
		dst = wire.AppendFrame(dst, wire.TypeConsumeCredit, o.stream, due.Append(body[:0]))
	}
	var flushes []outFlush
	if len(dst) == 0 {
		o.mu.busy = false
		if !o.mu.confirms {
			flushes, o.mu.flushes = o.mu.flushes, nil
		}
	}
	o.mu.Unlock()
	for _, f := range flushes {
		close(f.done)
	}
	return dst, pause
}

// joinRuns appends runs that are sorted; one that goes on from the last one joins it.
func joinRuns(dst, runs []settledRun) []settledRun {
	for _, r := range runs {
		if n := len(dst); n > 0 && dst[n-1].follows(r.handle, r.Base, r.Attempt) && dst[n-1].Count <= math.MaxUint32-r.Count {
			dst[n-1].Count += r.Count
		} else {
			dst = append(dst, r)
		}
	}
	return dst
}

// appendRun adds a seq to runs; in order it costs nothing. It joins none of the first ones, before from.
func appendRun(runs []settledRun, from int, handle uint32, seq core.Seq, attempt uint16) []settledRun {
	if n := len(runs); n > from && runs[n-1].follows(handle, seq, attempt) {
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
