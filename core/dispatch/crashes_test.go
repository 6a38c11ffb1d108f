package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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

// retryCopy is a record of the retry queue; its seq there is its index + 1.
type retryCopy struct {
	past Past
	due  time.Time
}

// handedCopy is a delivery that a consumer holds.
type handedCopy struct {
	of      int
	seq     core.Seq
	attempt uint16
	life    int // which owner made it
}

// crashWorld is what outlives owners, and the present owner.
type crashWorld struct {
	spec    core.GroupSpec
	now     time.Time
	rows    [crashExtents][]byte // durable
	retries []retryCopy
	dead    int // copies in the dead letter queue

	life   int
	g      *Group
	shares [crashExtents]*Share

	last      *handedCopy
	attempts  []uint16 // of all deliveries
	forgotten int      // deliveries of a first attempt that was made before
	crashes   int
	settled   bool // an ack was taken …
	durable   bool // … and is durable
	lapsed    bool // advanced beyond a lock
	broken    string
}

func newCrashWorld(spec core.GroupSpec) *crashWorld {
	w := &crashWorld{spec: spec.WithDefaults(), now: start}
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
	var states [crashExtents]State
	for i, row := range w.rows {
		if row == nil {
			continue
		}
		st, err := DecodeState(row)
		if err != nil {
			w.fail("a checkpoint does not decode: %v", err)
			return
		}
		states[i] = st
	}
	w.g = NewGroup(w.spec)
	w.shares[ofLog] = w.g.AddShare(extent(1), states[ofLog], w.now)
	w.shares[ofRetries] = w.g.AddTimers(extent(2), states[ofRetries], w.now)
	w.shares[ofRetries].Returning()
}

// feed offers what the owner has not read.
func (w *crashWorld) feed() {
	if s := w.shares[ofLog]; s.ReadFrom() == 1 {
		if err := s.Offer(records(1, 1, nil), w.now); err != nil {
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
		r.Past = []Past{c.past}
		if err := s.OfferDue(r, w.now); err != nil {
			w.fail("offer due: %v", err)
		}
	}
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
		w.last = &handedCopy{of, r.Base, r.Attempt, w.life}
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
		w.rows[i] = blob
		if told {
			s.Saved(token)
		}
	}
	w.durable = w.settled
	return changed
}

// transfer moves what is to be moved: outcome ok, lost (appended, and the outcome is not known), none (not appended, and
// that is not known), failed, or crash (appended, and the owner does not hear of it).
func (w *crashWorld) transfer(outcome string) bool {
	done := false
	for to := range Destination(Destinations) {
		for _, t := range w.g.TakeTransfers(to, 9, nil) {
			done = true
			if w.settled {
				w.fail("acked, and transferred to the %s", to)
			}
			there := false
			if t.Again {
				there = w.has(t)
			} else if w.has(t) {
				w.fail("it is in the %s, and is appended without a look", to)
			}
			if there {
				t.Share.Transferred(t.Seq, w.now)
				continue
			}
			if outcome == "ok" || outcome == "lost" || outcome == "crash" {
				w.append(t)
			}
			switch outcome {
			case "ok":
				t.Share.Transferred(t.Seq, w.now)
			case "lost", "none":
				t.Share.TransferFailed(t.Seq, true, w.now.Add(time.Second), w.now)
			case "failed":
				t.Share.TransferFailed(t.Seq, false, w.now.Add(time.Second), w.now)
			}
		}
	}
	return done
}

// has reports whether the queue of a transfer has the message.
func (w *crashWorld) has(t Transfer) bool {
	if t.To == DeadLetterQueue {
		return w.dead > 0
	}
	return slices.ContainsFunc(w.retries, func(c retryCopy) bool { return c.past.Attempts == t.Attempts })
}

func (w *crashWorld) append(t Transfer) {
	if t.To == DeadLetterQueue {
		if w.dead++; w.dead > 1 {
			w.fail("%d dead letters", w.dead)
		}
		if counted := int(t.Attempts - t.Excused); t.Reason == Exhausted && counted != w.spec.MaxDeliveries {
			w.fail("exhausted after %d of %d attempts, %d of them not counted", t.Attempts, w.spec.MaxDeliveries, t.Excused)
		}
		if n := len(w.attempts); t.Reason == Exhausted && n < w.spec.MaxDeliveries {
			w.fail("exhausted after %d deliveries", n)
		}
		return
	}
	origin := core.Receipt{Extent: extent(1), Seq: 1}
	w.retries = append(w.retries, retryCopy{Past{Origin: origin, Attempts: t.Attempts, Excused: t.Excused, Unsure: t.Unsure, Epoch: 1}, t.Due})
}

// do applies an event, and reports whether it did anything.
func (w *crashWorld) do(event byte) (done bool) {
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
		if next := w.nextRetry(); !next.IsZero() && (!ok || next.Before(at)) {
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
	case 'f':
		done = w.transfer("failed")
	case 'c':
		done = w.transfer("crash")
		w.crash()
		return done
	case 'x':
		w.crash()
		done = true
	}
	if err := w.g.check(); err != nil && w.broken == "" {
		w.fail("%v", err)
	}
	return done
}

func (w *crashWorld) crash() {
	w.crashes++
	w.begin()
}

// nextRetry is when the next record of the retry queue comes.
func (w *crashWorld) nextRetry() (next time.Time) {
	for _, c := range w.retries {
		if c.due.After(w.now) && (next.IsZero() || c.due.Before(next)) {
			next = c.due
		}
	}
	return next
}

// settle answers the last delivery, however long ago it was, by a token if its owner is gone.
func (w *crashWorld) settle(event byte) bool {
	h := w.last
	s := w.shares[h.of]
	switch event {
	case 'a':
		taken := false
		if h.life == w.life {
			taken = len(s.Ack(h.seq, 1, h.attempt, w.now, nil)) == 0
		} else {
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

const crashEvents = "tanlresdkuyfcx"

// replay runs a schedule; useful is whether its last event did anything.
func replayCrashes(spec core.GroupSpec, schedule string) (w *crashWorld, useful bool) {
	w = newCrashWorld(spec)
	w.feed()
	useful = true
	for i := range len(schedule) {
		useful = w.do(schedule[i])
	}
	return w, useful
}

// crashLength is how many events the schedules have.
const crashLength = 5

func TestCrashes_EveryShortSchedule(t *testing.T) {
	for _, most := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d deliveries", most), func(t *testing.T) {
			spec := core.GroupSpec{LockTimeout: 10 * time.Second, MaxDeliveries: most}
			if broken := tryCrashes(spec, "", crashLength); len(broken) > 0 {
				t.Errorf("%s", strings.Join(broken, "\n"))
			}
		})
	}
}

// tryCrashes tries all schedules that begin with one, and answers what is wrong with some of those that break a rule.
func tryCrashes(spec core.GroupSpec, schedule string, most int) (broken []string) {
	if _, useful := replayCrashes(spec, schedule); !useful {
		return nil
	}
	for _, answer := range []string{"n", "l", "a", "r", ""} {
		w, _ := replayCrashes(spec, schedule)
		if w.broken == "" {
			w.do('x')
			w.drain(answer)
		}
		if w.broken != "" {
			return []string{fmt.Sprintf("%sx, then %q: %s", schedule, answer, w.broken)}
		}
	}
	if len(schedule) == most {
		return nil
	}
	for _, event := range []byte(crashEvents) {
		if broken = append(broken, tryCrashes(spec, schedule+string(event), most)...); len(broken) > 20 {
			break
		}
	}
	return broken
}
