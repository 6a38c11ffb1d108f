package client

import (
	"cmp"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// unconfirmed is what was sent, as it was sent; frames are nacks, rejects and extends.
type unconfirmed struct {
	acks, returns []settledRun
	frames        []byte
}

func (u *unconfirmed) empty() bool { return len(u.acks)+len(u.returns)+len(u.frames) == 0 }

func (u *unconfirmed) reset() {
	u.acks, u.returns, u.frames = u.acks[:0], u.returns[:0], u.frames[:0]
}

// Spaces of the Confirms of a stream, but for those that a flush waits for: confirmEvery for one that goes with
// settlements, confirmAlone for one without. So a consumer that goes on costs its host no read and no write for them.
const (
	confirmEvery = int64(50 * time.Millisecond)
	confirmAlone = 4 * confirmEvery
)

// expectConfirms: the host answers Confirms.
func (o *outbox) expectConfirms() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.confirms = true
	o.confirmed.Store(0)
}

// applied takes the answer to a Confirm.
func (o *outbox) applied(position uint64) {
	o.mu.Lock()
	if !o.mu.waiting || position != o.mu.position {
		o.mu.Unlock()
		return
	}
	o.mu.waiting = false
	o.mu.asked.reset()
	o.confirmed.Store(o.mu.askedAt)
	var over []outFlush
	for len(o.mu.flushes) > 0 && o.mu.flushes[0].position <= position {
		over = append(over, o.mu.flushes[0])
		o.mu.flushes = o.mu.flushes[1:]
	}
	wake := (!o.mu.fresh.empty() || len(o.mu.flushes) > 0) && !o.mu.busy && !o.mu.over
	if wake {
		o.mu.busy = true
	}
	o.mu.Unlock()
	for _, f := range over {
		close(f.done)
	}
	if wake {
		signal(o.wake)
	}
}

// unconfirmed answers the settlement of a delivery that was sent and not confirmed.
func (o *outbox) unconfirmed(handle uint32, seq core.Seq, attempt uint16, ref *extentRef) (found []settlement) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, u := range [...]*unconfirmed{&o.mu.asked, &o.mu.fresh} {
		u.each(only(handle, ref), func(x settlement) {
			if x.extent != nil && x.run.Attempt == attempt && x.run.Base <= seq && seq < x.run.Base+core.Seq(x.run.Count) {
				x.run.Base, x.run.Count = seq, 1
				found = append(found, x)
			}
		})
	}
	return found
}

// cameAgain takes deliveries of an extent: a message that was given back and is here again is not given back once more
// if the stream is lost before the host confirms the first time.
func (o *outbox) cameAgain(handle uint32, runs []wire.DeliverRun) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.asked.returns)+len(o.mu.fresh.returns) == 0 {
		return
	}
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b wire.DeliverRun) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Base, b.Base))
	})
	for _, u := range [...]*unconfirmed{&o.mu.asked, &o.mu.fresh} {
		u.returns = without(u.returns, handle, runs)
	}
}

// without takes deliveries of an extent, which are in the order of attempts and seqs, out of runs. Most frames bring
// none of them again.
func without(runs []settledRun, handle uint32, cuts []wire.DeliverRun) []settledRun {
	first := slices.IndexFunc(runs, func(r settledRun) bool { return len(among(cuts, handle, r)) > 0 })
	if first < 0 {
		return runs
	}
	kept := append(make([]settledRun, 0, len(runs)), runs[:first]...)
	for _, r := range runs[first:] {
		from, end := r.Base, r.Base+core.Seq(r.Count)
		keep := func(upTo core.Seq) {
			if from < upTo {
				kept = append(kept, settledRun{r.handle, wire.SeqRun{Base: from, Count: uint32(upTo - from), Attempt: r.Attempt}})
			}
		}
		for _, c := range among(cuts, handle, r) {
			keep(c.Base)
			from = max(from, c.Base+core.Seq(c.Count))
		}
		keep(end)
	}
	return kept
}

// among are those deliveries of an extent that have messages of a run.
func among(cuts []wire.DeliverRun, handle uint32, r settledRun) []wire.DeliverRun {
	if r.handle != handle {
		return nil
	}
	end := r.Base + core.Seq(r.Count)
	i, _ := slices.BinarySearchFunc(cuts, r, func(c wire.DeliverRun, r settledRun) int {
		return cmp.Or(cmp.Compare(c.Attempt, r.Attempt), cmp.Compare(c.Base+core.Seq(c.Count), r.Base+1))
	})
	n := i
	for n < len(cuts) && cuts[n].Attempt == r.Attempt && cuts[n].Base < end {
		n++
	}
	return cuts[i:n]
}

// takeUnconfirmed takes all settlements of an extent that were sent and not confirmed: the stream answers for them no
// more.
func (o *outbox) takeUnconfirmed(handle uint32, ref *extentRef) (found []settlement) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, u := range [...]*unconfirmed{&o.mu.asked, &o.mu.fresh} {
		u.each(only(handle, ref), func(x settlement) {
			if x.extent != nil {
				found = append(found, x)
			}
		})
		u.drop(handle)
	}
	return found
}

// drop forgets the settlements of a handle.
func (u *unconfirmed) drop(handle uint32) {
	of := func(r settledRun) bool { return r.handle == handle }
	u.acks, u.returns = slices.DeleteFunc(u.acks, of), slices.DeleteFunc(u.returns, of)
	kept := u.frames[:0]
	u.eachFrame(func(raw []byte, h uint32, _ settlement) {
		if h != handle {
			kept = append(kept, raw...)
		}
	})
	u.frames = kept
}

// each calls f with every settlement; extent finds what a handle names.
func (u *unconfirmed) each(extent func(handle uint32) *extentRef, f func(settlement)) {
	for _, r := range u.acks {
		f(settlement{verb: wire.TypeAck, extent: extent(r.handle), run: r.SeqRun})
	}
	for _, r := range u.returns {
		f(settlement{verb: wire.TypeReturn, extent: extent(r.handle), run: r.SeqRun})
	}
	u.eachFrame(func(_ []byte, handle uint32, x settlement) {
		x.extent = extent(handle)
		f(x)
	})
}

// eachFrame calls f with every nack, reject and extend, without its extent.
func (u *unconfirmed) eachFrame(f func(raw []byte, handle uint32, x settlement)) {
	for rest := u.frames; len(rest) > 0; {
		frame, next, err := wire.NextFrame(rest)
		if err != nil { // this outbox has encoded them
			return
		}
		raw := rest[:len(rest)-len(next)]
		rest = next
		var nack wire.Nack
		var extend wire.Extend
		switch {
		case frame.Type == wire.TypeExtend && extend.Decode(frame.Body) == nil:
			f(raw, extend.Handle, settlement{
				verb: frame.Type, run: wire.SeqRun{Base: extend.Seq, Count: 1, Attempt: extend.Attempt},
				delay: time.Duration(extend.Millis) * time.Millisecond,
			})
		case frame.Type != wire.TypeExtend && nack.Decode(frame.Body) == nil:
			f(raw, nack.Handle, settlement{
				verb: frame.Type, run: wire.SeqRun{Base: nack.Seq, Count: 1, Attempt: nack.Attempt},
				delay: time.Duration(nack.DelayMillis) * time.Millisecond, reason: string(nack.Reason), metadata: string(nack.Metadata),
			})
		}
	}
}

// confirmLocked asks for a confirmation if it is time. If it is not yet, the sender is to come again after pause; none
// is due while an answer is waited for, which wakes the sender.
func (o *outbox) confirmLocked(dst []byte, now int64) (out []byte, pause time.Duration) {
	hurry := len(o.mu.flushes) > 0 && o.mu.confirms
	if o.mu.waiting || o.mu.fresh.empty() && !hurry {
		return dst, 0
	}
	every := confirmEvery
	if len(dst) == 0 {
		every = confirmAlone
	}
	if left := o.mu.askedAt + every - now; left > 0 && !hurry {
		return dst, time.Duration(left)
	}
	o.mu.asked, o.mu.fresh = o.mu.fresh, o.mu.asked
	o.mu.fresh.reset()
	o.mu.position++
	o.mu.waiting, o.mu.askedAt = true, now
	var body [8]byte
	return wire.AppendFrame(dst, wire.TypeConfirm, o.stream, wire.AppendPosition(body[:0], o.mu.position)), 0
}

// only names one extent of a stream, and none of the others.
func only(handle uint32, ref *extentRef) func(handle uint32) *extentRef {
	return func(h uint32) *extentRef {
		if h == handle {
			return ref
		}
		return nil
	}
}
