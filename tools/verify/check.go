package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
)

// Kind is a way in which a history can be wrong.
type Kind string

const (
	Lost        Kind = "lost"        // acknowledged, and never received
	Invented    Kind = "invented"    // received, and never published
	Denied      Kind = "denied"      // received, although its publisher was told that it is not stored
	Corrupted   Kind = "corrupted"   // received with another payload
	Duplicated  Kind = "duplicated"  // received again without a reason
	Miscounted  Kind = "miscounted"  // an attempt was not one more than the one before
	Resurrected Kind = "resurrected" // received after it had been found among the dead letters
	Stuck       Kind = "stuck"       // left over, and not delivered
	Disordered  Kind = "disordered"  // of a CP queue: a publisher's order is lost
	Forked      Kind = "forked"      // a ledger has one message twice
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind  Kind
	Group string // "" of a ledger
	Key   Key
	Text  string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s, group %q: %s", f.Kind, f.Key, f.Group, f.Text)
}

// Count is what a group received.
type Count struct {
	Queue, Group string
	Acked        int // messages it has to get
	Received     int // different messages it got
	Dead         int // of these, as dead letters
	Duplicates   int // deliveries above one per message that was not given back
	Retries      int // deliveries of what had been given back
	Recounted    int // deliveries with a later attempt that was counted before: two owners counted apart
}

// Report is the result of Check.
type Report struct {
	Counts   []Count
	Findings []Finding
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

// Of are the findings of one kind.
func (r *Report) Of(k Kind) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Kind != k })
}

// Check compares the ledgers of a history with what its groups received. slack is for how long before a crash an
// acknowledgement may be forgotten, and for how long after one its effects may be seen.
func Check(h *History, slack time.Duration) *Report {
	c := &checker{h: h, slack: slack, ledger: make(map[Key]*Published, len(h.Published)), retries: make(map[core.ExtentID]string)}
	for i := range h.Published {
		p := &h.Published[i]
		if c.ledger[p.Key] != nil {
			c.find(Forked, "", p.Key, "the ledger has it twice")
		}
		c.ledger[p.Key] = p
	}
	received := make(map[groupKey][]*Received)
	for i := range h.Received {
		r := &h.Received[i]
		g := groupKey{r.Queue, r.Group}
		received[g] = append(received[g], r)
		if by, known := c.retries[r.Receipt.Extent]; known && by != r.Group || r.Attempt == 1 {
			c.retries[r.Receipt.Extent] = ""
		} else {
			c.retries[r.Receipt.Extent] = r.Group
		}
	}
	for _, g := range h.Groups {
		key := groupKey{g.Queue, g.Group}
		c.group(g, received[key])
		delete(received, key)
	}
	for g, list := range received {
		c.find(Invented, g.group, list[0].Key, "the history knows no such group of %s", g.queue)
	}
	for _, chain := range h.Chains {
		c.order(chain)
	}
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Key.Publisher, b.Key.Publisher), cmp.Compare(a.Key.Seq, b.Key.Seq))
	})
	return &c.report
}

type groupKey struct{ queue, group string }

type checker struct {
	h       *History
	slack   time.Duration
	ledger  map[Key]*Published
	retries map[core.ExtentID]string // by extents that may be of a retry queue, the group; "": it is none, since several groups received of it, or a first attempt
	report  Report
}

func (c *checker) find(kind Kind, group string, key Key, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{kind, group, key, fmt.Sprintf(format, args...)})
}

// group checks what one group received.
func (c *checker) group(g Left, received []*Received) {
	count := Count{Queue: g.Queue, Group: g.Group}
	byKey := make(map[Key][]*Received)
	letters := 0
	for _, r := range received {
		if r.Settled == Dead {
			letters++
		}
		p := c.ledger[r.Key]
		switch {
		case p == nil:
			c.find(Invented, g.Group, r.Key, "no ledger has it; delivered at %s", r.At.Format(time.StampMilli))
			continue
		case p.CRC != r.CRC:
			c.find(Corrupted, g.Group, r.Key, "crc %08x instead of %08x", r.CRC, p.CRC)
		case p.Outcome == Failed:
			c.find(Denied, g.Group, r.Key, "delivered, but its publish had failed")
		}
		byKey[r.Key] = append(byKey[r.Key], r)
	}
	for key, p := range c.ledger {
		if key.Queue != g.Queue {
			continue
		}
		list := byKey[key]
		if p.Outcome == Acked {
			count.Acked++
			if len(list) == 0 {
				c.find(Lost, g.Group, key, "acknowledged at %s", p.At.Format(time.StampMilli))
			}
		}
		if len(list) > 0 {
			count.Received++
			c.message(&count, p, list)
		}
	}
	if g.Undone > 0 {
		c.find(Stuck, g.Group, Key{Queue: g.Queue}, "%d messages are left", g.Undone)
	}
	if int(g.Dead) != letters {
		c.find(Stuck, g.Group, Key{Queue: g.Queue}, "the group counts %d dead letters, %d were found", g.Dead, letters)
	}
	c.report.Counts = append(c.report.Counts, count)
}

// message checks the deliveries of one message to one group. A publisher that lost an answer stores a message twice:
// each copy has a life of its own. One that was parked goes on with its life elsewhere.
func (c *checker) message(count *Count, p *Published, list []*Received) {
	slices.SortStableFunc(list, func(a, b *Received) int { return a.At.Compare(b.At) })
	copies := make(map[core.Receipt][]*Received) // by where they were first
	homes := make(map[core.Receipt]core.Receipt) // where a copy was first, by where it is
	dead := false
	for i, r := range list {
		home, known := homes[r.Receipt]
		if !known {
			home = r.Receipt
			if c.retries[r.Receipt.Extent] != "" || r.Attempt == 1 && !c.crashed(p.At.Add(-tried), p.At) { // else it is another copy: what was parked comes back with its attempts
				home = c.parkedFrom(copies, r)
			}
			homes[r.Receipt] = home
		}
		if i > 0 && copies[home] == nil {
			count.Duplicates++
			if !c.crashed(p.At.Add(-tried), p.At) {
				c.find(Duplicated, r.Group, r.Key, "stored twice, the second time as %s, without a crash before it was acknowledged", r.Receipt)
			}
		}
		copies[home] = append(copies[home], r)
		dead = dead || r.Settled == Dead
	}
	if dead {
		count.Dead++
	}
	for _, deliveries := range copies {
		c.stored(count, p, deliveries)
	}
}

// parkedFrom is where the copy was first that a delivery from a new place goes on with: of those that were parked, or
// nacked or dropped and then moved to the retry queue to make room, the one whose next attempt it is; else the one that
// was parked last, and else itself. One that was parked goes before one that may yet come again where it was. An owner
// that took over in a crash may have delivered it once more where it was parked from, to one that did not settle it.
func (c *checker) parkedFrom(copies map[core.Receipt][]*Received, r *Received) core.Receipt {
	home, at, best := r.Receipt, time.Time{}, 0
	for first, list := range copies {
		parked := list[len(list)-1]
		fits := parked.Attempt+1 == r.Attempt
		for i := len(list) - 2; i >= 0 && !fits && parked.unsettled() && list[i].Receipt == parked.Receipt && c.crashed(list[i].At, r.At); i-- {
			parked = list[i]
			fits = parked.Attempt+1 == r.Attempt
		}
		likely := 0
		switch moved := parked.Settled == RetryQueued; {
		case moved && fits:
			likely = 3
		case fits && parked.unsettled():
			likely = 2
		case moved:
			likely = 1
		}
		if likely > best || likely == best && likely > 0 && parked.At.After(at) {
			home, at, best = first, parked.At, likely
		}
	}
	return home
}

// unsettled reports whether a consumer was given it for nothing.
func (r *Received) unsettled() bool { return r.Settled == Back || r.Settled == Dropped }

// tried is how long a publisher tries a message.
const tried = 30 * time.Second

// stored checks the deliveries of one copy of a message.
func (c *checker) stored(count *Count, p *Published, list []*Received) {
	var last *Received // that was no dead letter
	dead := false
	for _, r := range list {
		switch {
		case r.Settled == Dead:
			dead = true
			continue
		case r.Settled == Stale:
			count.Retries++
			continue
		case dead && !c.crashed(list[0].At, r.At):
			c.find(Resurrected, r.Group, r.Key, "delivered at %s after its death", r.At.Format(time.StampMilli))
		case last != nil && !dead:
			c.again(count, last, r)
		}
		if last != nil {
			c.attempt(count, last, r)
		} else if r.Attempt != 1 && !c.crashed(p.At, r.At) && !c.skipped(r) {
			c.find(Miscounted, r.Group, r.Key, "seen first with attempt %d", r.Attempt)
		}
		last = r
	}
	acked := slices.ContainsFunc(list, func(r *Received) bool { return r.Settled == Done || r.Settled == Late || r.Settled == Stale }) // what a later consumer does with a duplicate may not count
	if !dead && !acked {
		c.find(Lost, count.Group, p.Key, "given back or dropped by its last consumer, and never seen again")
	}
}

// again judges a delivery after another of the same copy.
func (c *checker) again(count *Count, before, r *Received) {
	if before.Settled != Done {
		count.Retries++
		return
	}
	count.Duplicates++
	if !c.crashed(before.At, r.At) {
		c.find(Duplicated, r.Group, r.Key, "delivered %s at %s and %s, without a crash in between",
			r.Receipt, before.At.Format(time.StampMilli), r.At.Format(time.StampMilli))
	}
}

// attempt checks the count of two deliveries from the same place: a first attempt may be forgotten by a crash, later
// ones are durable before they are handed out. Attempts may be left out: a consumer that died had them. Two owners of a
// share count apart, if the first of the two deliveries was about when there were two.
func (c *checker) attempt(count *Count, before, r *Received) {
	if r.Attempt > before.Attempt {
		return
	}
	if r.Attempt == 1 && before.Attempt == 1 && c.crashed(before.At, r.At) {
		return
	}
	if c.split(before.At) {
		count.Recounted++
		return
	}
	c.find(Miscounted, r.Group, r.Key, "attempt %d at %s after attempt %d at %s", r.Attempt, r.At.Format(time.StampMilli),
		before.Attempt, before.At.Format(time.StampMilli))
}

// skipped reports whether somebody may have had the message without writing it down: a consumer that crashed.
func (c *checker) skipped(r *Received) bool { return c.crashed(time.Time{}, r.At) }

// crashed reports whether something was down between two times, give or take the slack.
func (c *checker) crashed(from, to time.Time) bool {
	return slices.ContainsFunc(c.h.Crashes, func(d Crash) bool { return c.touches(d, from, to) })
}

// split is crashed, at a time, for what may have left two owners.
func (c *checker) split(at time.Time) bool {
	return slices.ContainsFunc(c.h.Crashes, func(d Crash) bool { return d.Split && c.touches(d, at, at) })
}

func (c *checker) touches(d Crash, from, to time.Time) bool {
	return d.From.Before(to.Add(c.slack)) && d.To.After(from.Add(-c.slack))
}

// listed is how many findings of a kind String shows; the rest are counted.
const listed = 5

// String is the report for people: a line per group, then what is wrong.
func (r *Report) String() string {
	var b strings.Builder
	for _, c := range r.Counts {
		fmt.Fprintf(&b, "%s %s: %d messages received, %d acknowledged, %d dead, %d retries, %d duplicates\n",
			c.Queue, c.Group, c.Received, c.Acked, c.Dead, c.Retries, c.Duplicates)
	}
	kinds := make(map[Kind]int)
	for _, f := range r.Findings {
		if kinds[f.Kind]++; kinds[f.Kind] <= listed {
			fmt.Fprintln(&b, f)
		}
	}
	for kind, n := range kinds {
		if n > listed {
			fmt.Fprintf(&b, "%s: %d in all\n", kind, n)
		}
	}
	if r.OK() {
		b.WriteString("nothing is wrong\n")
	}
	return b.String()
}
