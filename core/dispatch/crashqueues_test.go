package dispatch

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// retryCopy is a record of the retry queue; its seq there is its index + 1.
type retryCopy struct {
	past History
	due  time.Time
}

// lateAppend is an append that an input host holds up for as long as it may.
type lateAppend struct {
	transfer Transfer
	until    time.Time
}

// crashQueues are the built-in queues of the group, which outlive owners.
type crashQueues struct {
	retries []retryCopy
	dead    int          // copies in the dead letter queue
	late    []lateAppend // that are under way
}

// has reports whether the queue of a transfer has the message.
func (q *crashQueues) has(t Transfer) bool {
	if t.To == DeadLetterQueue {
		return q.dead > 0
	}
	return slices.ContainsFunc(q.retries, func(c retryCopy) bool { return c.past.Attempts == t.Attempts })
}

// arrived are the appends whose time is up.
func (q *crashQueues) arrived(now time.Time) (out []Transfer) {
	q.late = slices.DeleteFunc(q.late, func(a lateAppend) bool {
		up := !a.until.After(now)
		if up {
			out = append(out, a.transfer)
		}
		return up
	})
	return out
}

// next is when the next record of the retry queue comes, or an append to it.
func (q *crashQueues) next(now time.Time) (next time.Time) {
	for _, c := range q.retries {
		if c.due.After(now) && (next.IsZero() || c.due.Before(next)) {
			next = c.due
		}
	}
	for _, a := range q.late {
		if next.IsZero() || a.until.Before(next) {
			next = a.until
		}
	}
	return next
}

// transfer moves what is to be moved: outcome ok, lost (appended, and the outcome is not known), none (not appended,
// and that is not known), late (it is appended later than any look-up that misses it, and the outcome is not known),
// failed, or crash (appended, and the owner does not hear of it).
func (w *crashWorld) transfer(outcome string) bool {
	done := false
	for to := range Destination(Destinations) {
		for _, t := range w.g.TakeTransfers(to, 9, nil) {
			done = true
			there := false
			if t.Again {
				if there = w.has(t); !there && w.now.Before(t.Certain) {
					t.Share.TransferFailed(t.Seq, false, t.Certain, w.now)
					continue
				}
			} else if w.has(t) {
				w.fail("it is in the %s, and is appended without a look", to)
			}
			if there {
				t.Share.Transferred(t.Seq, w.now)
				continue
			}
			if w.settled {
				w.fail("acked, and transferred to the %s", to)
			}
			if outcome == "ok" || outcome == "lost" || outcome == "crash" {
				w.append(t)
			}
			switch outcome {
			case "ok":
				t.Share.Transferred(t.Seq, w.now)
			case "late":
				w.late = append(w.late, lateAppend{t, w.now.Add(TransferDoubt - time.Millisecond)})
				fallthrough
			case "lost", "none":
				t.Share.TransferFailed(t.Seq, true, w.now.Add(time.Second), w.now)
			case "failed":
				t.Share.TransferFailed(t.Seq, false, w.now.Add(time.Second), w.now)
			}
		}
	}
	return done
}

// append has a queue take the message.
func (w *crashWorld) append(t Transfer) {
	if t.To == DeadLetterQueue {
		if w.dead++; w.dead > 1 {
			w.fail("%d dead letters", w.dead)
		}
		if counted := int(t.Attempts - t.NotCounted); t.Reason == Exhausted && counted != w.spec.MaxDeliveries {
			w.fail("exhausted after %d of %d attempts, %d of them not counted", t.Attempts, w.spec.MaxDeliveries, t.NotCounted)
		}
		if n := len(w.attempts); t.Reason == Exhausted && n < w.spec.MaxDeliveries {
			w.fail("exhausted after %d deliveries", n)
		}
		return
	}
	origin := core.Receipt{Extent: extent(1), Seq: 1}
	w.retries = append(w.retries, retryCopy{History{Origin: origin, Attempts: t.Attempts, NotCounted: t.NotCounted, Unsure: t.Unsure}, t.Due})
}
