package dispatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// The crash tests try every short schedule of one message over owners that crash, with both built-in queues beside it,
// and end each with a crash and a drain.

// crashExtents are the extents that the message can be in.
const (
	ofLog = iota
	ofRetries
	crashExtents
)

// handedCopy is a delivery that a consumer holds.
type handedCopy struct {
	of      int
	seq     core.Seq
	attempt uint16
	life    int  // which owner made it
	over    bool // the consumer has nacked or rejected it at another owner: it does not ack it at this one
}

// crashRules are what a test is about.
type crashRules struct {
	events  string
	spec    core.GroupSpec
	expires time.Duration // after the start; 0: never
}

// crashWorld is what outlives owners, and the present owner.
type crashWorld struct {
	crashRules
	crashQueues
	spec core.GroupSpec // as it is by now
	now  time.Time
	rows []map[int]crashRow // durable: of each owner, the first one's first, by extent
	puts int64              // of those so far

	life   int                  // of the present owner, from 1
	given  [crashExtents]*State // of the owner before it, if that gave all away and lives
	g      *Group
	shares [crashExtents]*Share

	last      *handedCopy
	attempts  []uint16 // of all deliveries
	forgotten int      // deliveries of a first attempt that was made before
	crashes   int
	settled   bool // an ack was taken …
	durable   bool // … and is durable
	broken    string
}

// crashRow is what an owner saved last.
type crashRow struct {
	blob    []byte
	written int64
}

func newCrashWorld(rules crashRules) *crashWorld {
	w := &crashWorld{crashRules: rules, spec: rules.spec.WithDefaults(), now: start}
	w.begin()
	return w
}

func (w *crashWorld) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// begin is a new owner that knows what is durable.
func (w *crashWorld) begin() {
	w.life++
	w.settled = w.durable
	var saved [crashExtents][]Saved
	for life, rows := range slices.Backward(w.rows) { // the latest first
		for i := range rows {
			saved[i] = append(saved[i], w.row(life+1, i))
		}
	}
	w.rows = append(w.rows, map[int]crashRow{})
	w.g = NewGroup(w.spec)
	w.shares[ofLog] = w.g.AddShare(extent(1), MergeSaved(saved[ofLog]), w.now)
	w.shares[ofRetries] = w.g.AddTimers(extent(2), MergeSaved(saved[ofRetries]), w.now)
	w.shares[ofRetries].Returning()
}

// put is that an owner saves.
func (w *crashWorld) put(life, of int, blob []byte) {
	w.puts++
	w.rows[life-1][of] = crashRow{blob, w.puts}
}

// row is what an owner saved last.
func (w *crashWorld) row(life, of int) Saved {
	row := w.rows[life-1][of]
	st, err := DecodeState(row.blob)
	if err != nil {
		w.fail("a checkpoint does not decode: %v", err)
	}
	return Saved{Version: Version{runOf(byte(life)), row.written}, State: st}
}

// feed offers what the owner has not read.
func (w *crashWorld) feed() {
	if s := w.shares[ofLog]; s.ReadFrom() == 1 {
		r := records(1, 1, nil)
		r.Expire = []int64{w.expiry()}
		if err := s.Offer(r, w.now); err != nil {
			w.fail("offer: %v", err)
		}
	}
	s := w.shares[ofRetries]
	for i, c := range w.retries {
		seq := core.Seq(i + 1)
		if c.due.After(w.now) || s.Known().Done(seq) {
			continue
		}
		r := dueRecords(nil, nil, seq)
		r.History, r.Expire = []History{c.past}, []int64{w.expiry()}
		if err := s.OfferDue(r, w.now); err != nil {
			w.fail("offer due: %v", err)
		}
	}
}

// expiry is when the message expires, unix ms; 0: never.
func (w *crashWorld) expiry() int64 {
	if w.expires == 0 {
		return 0
	}
	return start.Add(w.expires).UnixMilli()
}

// take hands out what there is.
func (w *crashWorld) take() bool {
	done := false
	for _, r := range w.g.Take(1, Credit{Messages: 9, Bytes: 1 << 20}, w.now, nil) {
		of := slices.Index(w.shares[:], r.Share)
		done = true
		if r.Count != 1 {
			w.fail("%d messages at once", r.Count)
		}
		switch again := slices.Contains(w.attempts, r.Attempt); {
		case w.expires > 0 && w.now.After(start.Add(w.expires)):
			w.fail("expired, and delivered as attempt %d", r.Attempt)
		case w.settled:
			w.fail("acked, and delivered again as attempt %d", r.Attempt)
		case w.dead > 0:
			w.fail("a dead letter, and delivered again as attempt %d", r.Attempt)
		case again && r.Attempt == 1:
			w.forgotten++
		case again:
			w.fail("attempt %d is made twice", r.Attempt)
		}
		w.attempts = append(w.attempts, r.Attempt)
		w.last = &handedCopy{of: of, seq: r.Base, attempt: r.Attempt, life: w.life}
	}
	if n := len(w.attempts) - w.forgotten; n > w.spec.MaxDeliveries+mostUnsure || w.crashes == 0 && n > w.spec.MaxDeliveries {
		w.fail("%d deliveries, without %d of forgotten first attempts", n, w.forgotten)
	}
	return done
}

// save has the checkpoints of both shares be durable; told says that the owner hears of it.
func (w *crashWorld) save(told bool) bool {
	changed := false
	for i, s := range w.shares {
		changed = changed || s.Changed()
		blob, token := s.Checkpoint(nil, false, w.now)
		w.put(w.life, i, blob)
		if told {
			s.Saved(token)
		}
	}
	w.durable = w.settled
	return changed
}

// do applies an event, and reports whether it did anything.
func (w *crashWorld) do(event byte) (done bool) {
	for _, t := range w.arrived(w.now) {
		w.append(t)
	}
	w.feed()
	switch event {
	case 't':
		done = w.take()
	case 'a', 'n', 'l', 'r':
		if w.last == nil {
			return false
		}
		done = w.settle(event)
	case 'e':
		at, ok := w.g.NextDeadline()
		if next := w.next(w.now); !next.IsZero() && (!ok || next.Before(at)) {
			at, ok = next, true
		}
		if !ok {
			return false
		}
		if at.After(w.now) {
			w.now = at
		}
		w.g.Tick(w.now)
		done = true
	case 's':
		done = w.save(true)
	case 'd':
		done = w.save(false)
	case 'k':
		done = w.transfer("ok")
	case 'u':
		done = w.transfer("lost")
	case 'y':
		done = w.transfer("none")
	case 'v':
		done = w.transfer("late")
	case 'f':
		done = w.transfer("failed")
	case 'c':
		done = w.transfer("crash")
		w.crash()
		return done
	case 'g':
		done = w.transfer("crash")
		w.giveAway()
	case 'x':
		w.crash()
		done = true
	case 'h':
		w.giveAway()
		done = true
	case 'm':
		done = w.forgetOthers()
	case 'b':
		w.change(core.ExhaustedBlock)
		done = true
	case 'q':
		w.change(core.ExhaustedDLQ)
		done = true
	}
	if err := w.g.check(); err != nil && w.broken == "" {
		w.fail("%v", err)
	}
	return done
}

func (w *crashWorld) crash() {
	w.crashes++
	w.given = [crashExtents]*State{}
	w.begin()
}

// change has exhausted messages go elsewhere from now on.
func (w *crashWorld) change(to core.Exhausted) {
	w.spec.Exhausted = to
	w.g.Update(w.spec, w.now)
}

// giveAway has the next owner go on from what this one says last. Consumers may still settle here.
func (w *crashWorld) giveAway() {
	for i, s := range w.shares {
		st := s.State(w.now)
		w.given[i] = &st
		w.put(w.life, i, st.Append(nil))
	}
	w.durable = w.settled
	w.begin()
}

// ackLate acks at the owner before the present one, which then hears of it.
func (w *crashWorld) ackLate(h *handedCopy) bool {
	s, st := w.shares[h.of], w.given[h.of]
	if st == nil || h.over || h.life != w.life-1 || !st.Ack(h.seq, h.attempt, w.now) {
		return false
	}
	before := w.row(h.life, h.of)
	w.put(h.life, h.of, st.Append(nil))
	if after := w.row(h.life, h.of); after.Follows(before.State) {
		s.Cover(after.Version)
	}
	s.Absorb(*st, w.now)
	w.durable = true
	return true
}

// forgetOthers removes what earlier owners saved, once the present one has saved something.
func (w *crashWorld) forgetOthers() (done bool) {
	if len(w.rows[w.life-1]) < crashExtents {
		return false
	}
	for _, rows := range w.rows[:w.life-1] {
		done = done || len(rows) > 0
		clear(rows)
	}
	w.given = [crashExtents]*State{}
	return done
}

// settle answers the last delivery, however long ago it was, by a token if its owner is gone.
func (w *crashWorld) settle(event byte) (done bool) {
	h := w.last
	s := w.shares[h.of]
	defer func() { h.over = h.over || event != 'a' && done && h.life != w.life }()
	switch event {
	case 'a':
		taken := false
		if h.life == w.life {
			taken = len(s.Ack(h.seq, 1, h.attempt, w.now, nil)) == 0
		} else if taken = w.ackLate(h); !taken {
			taken = s.AckProven(h.seq, w.now)
		}
		if taken && w.settled {
			w.fail("acked twice")
		}
		if taken && w.dead > 0 {
			w.fail("a dead letter is acked")
		}
		w.settled = w.settled || taken
		return taken
	case 'r':
		return s.Reject(h.seq, h.attempt, nil, w.now) == nil
	case 'l':
		return s.Nack(h.seq, h.attempt, time.Minute, nil, 0, w.now) == nil
	}
	return s.Nack(h.seq, h.attempt, 0, nil, 0, w.now) == nil
}

// drain has consumers answer all that comes by one event, until the message is settled, or a dead letter.
func (w *crashWorld) drain(answer string) {
	w.change(core.ExhaustedDLQ)
	for range 200 {
		if w.broken != "" || w.settled || w.dead > 0 && w.g.Depth() == (Depth{}) {
			return
		}
		for _, event := range []byte("t" + answer + "sks") {
			w.do(event)
		}
		if d := w.g.Depth(); d.Ready == 0 || w.last == nil {
			w.do('e')
		}
	}
	w.fail("the message is lost: %+v, retries %+v, deliveries %v", w.g.Depth(), w.retries, w.attempts)
}
