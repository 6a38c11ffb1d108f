package dispatch

import (
	"encoding/binary"
	"math"
	"time"
)

// The breaker keeps an outage of a group's workers from exhausting messages. It is closed while enough attempts succeed, and opens when 20 messages
// failed in a row, or when the group's share of the latest 50 messages did; at least five of these must have failed at their first attempt, since a tail of
// poison has only retries left. Then it is half-open, and hands out four messages as probes, and open until the next round, with pauses that double from a
// second; what fails meanwhile does not count. One success closes it. When no first attempt failed for 15 rounds, what is left may be poison alone: from
// then on failures count, and each round is twice as large as the one before, until a first attempt fails again or something succeeds.
const (
	breakerWindow  = 50          // messages whose outcomes are remembered
	breakerLeast   = 20          // of these must be known, or have failed in a row
	breakerFirsts  = 5           // failures of first attempts among them
	breakerProbes  = 4           // messages of a round
	breakerRounds  = 15          // without the failure of a first attempt, until failures count again
	breakerMost    = 256         // messages of a round then
	breakerHurry   = 8           // then pauses last up to this part of the lock timeout
	breakerPause   = time.Second // after the first round
	breakerLongest = time.Minute // or the lock timeout, if that is shorter, but at least breakerPause
	breakerAlways  = 100         // percent
	breakerVersion = 1           // of what save makes
	breakerSaved   = 1 + 8 + 8   // bytes: version, since ns, pause ns
)

// outcome is what became of one message's latest attempt.
type outcome struct {
	of    deadRef // which message failed: the breaker compares it, and hands it back when it opens
	fails uint16  // failures since the last success before them; 0: it succeeded
	first bool    // a first attempt is among them
}

// breaker is that of one group. The zero value is off; see set.
//
//	latest are outcomes, the oldest first, of distinct messages as far as they failed;  row ≤ len(latest)
//	open: left > 0 while half-open; next > 0 while the round after this one is awaited
type breaker struct {
	longest int64 // ns: a pause
	hurry   int64 // ns: a pause while failures count again

	latest  []outcome // nil until something fails
	since   int64     // ns: when it opened
	next    int64     // ns: when the next round begins; 0: nothing of this one is handed out
	pause   int64     // ns: after this round
	percent uint8     // of failures that opens it; 0: off
	row     uint8     // of the latest: failures since the last success
	rounds  uint8     // begun since a first attempt failed, ≤ breakerRounds
	open    bool
	size    uint16 // messages of a round
	left    uint16 // of this round, not handed out yet
}

// set gives the breaker its rules; percent 0 switches it off, and closes it.
func (b *breaker) set(percent int, lockTimeout time.Duration) {
	b.percent = uint8(percent)
	b.longest = int64(min(breakerLongest, max(lockTimeout, breakerPause)))
	b.hurry = int64(min(breakerLongest, max(lockTimeout/breakerHurry, breakerPause)))
	if percent == 0 {
		b.close()
	}
}

// admit is how many messages may be handed out now.
func (b *breaker) admit() int {
	if !b.open {
		return math.MaxInt
	}
	return int(b.left)
}

// handed notes n messages handed out: while it is open, probes.
func (b *breaker) handed(n int, now int64) {
	if !b.open || n == 0 {
		return
	}
	b.left -= uint16(min(n, int(b.left)))
	if b.next == 0 {
		b.next = now + b.pause
		b.pause = min(2*b.pause, b.limit())
	}
}

// limit of a pause. What is left when failures count again is taken for poison, and needs no patience.
func (b *breaker) limit() int64 {
	if b.counting() {
		return b.hurry
	}
	return b.longest
}

// succeeded notes n successes in a row, and reports whether it closed by them. Frequent.
func (b *breaker) succeeded(n int) (closed bool) {
	switch {
	case b.open:
		b.close()
		return true
	case len(b.latest) == 0 || n == 0:
	case b.percent == breakerAlways: // then only what fails in a row matters
		b.latest, b.row = b.latest[:0], 0
	default:
		b.push(min(n, breakerWindow), outcome{})
		b.row = 0
	}
	return false
}

// push appends an outcome n times, and forgets the oldest ones.
func (b *breaker) push(n int, o outcome) {
	if drop := len(b.latest) + n - breakerWindow; drop > 0 {
		b.latest = b.latest[:copy(b.latest, b.latest[drop:])]
	}
	for range n {
		b.latest = append(b.latest, o)
	}
}

// failed notes a failed attempt of a message, the first one or another, and reports whether it counts. If the breaker opened by it, led are the outcomes
// that it did by: their failures do not count either.
func (b *breaker) failed(of deadRef, first bool, now int64) (counts bool, led []outcome) {
	switch {
	case b.percent == 0:
		return true, nil
	case b.open:
		if first {
			b.rounds, b.size = 0, breakerProbes
		}
		return b.counting(), nil
	}
	if b.latest == nil {
		b.latest = make([]outcome, 0, breakerWindow)
	}
	o := outcome{of: of, fails: 1, first: first}
	for i, x := range b.latest {
		if x.fails == 0 || x.of != of {
			continue
		}
		if i >= len(b.latest)-int(b.row) { // else a success is between the two
			o.fails, o.first = saturate(x.fails), first || x.first
			b.row--
		}
		b.latest = append(b.latest[:i], b.latest[i+1:]...)
		break
	}
	b.push(1, o)
	b.row = min(b.row+1, breakerWindow)
	if !b.trips() {
		return true, nil
	}
	led = b.latest
	b.begin(now)
	return true, led
}

// trips reports whether so much failed that it opens.
func (b *breaker) trips() bool {
	tell := func(of []outcome) (failed, first int) {
		for _, o := range of {
			if o.fails > 0 {
				failed++
			}
			if o.first {
				first++
			}
		}
		return failed, first
	}
	if b.row >= breakerLeast {
		if _, first := tell(b.latest[len(b.latest)-int(b.row):]); first >= breakerFirsts {
			return true
		}
	}
	if b.percent == breakerAlways || len(b.latest) < breakerLeast {
		return false
	}
	failed, first := tell(b.latest)
	return first >= breakerFirsts && failed*100 >= int(b.percent)*len(b.latest)
}

// begin opens it, with a round of probes at once.
func (b *breaker) begin(now int64) {
	b.open, b.since = true, now
	b.latest, b.row = nil, 0
	b.rounds, b.size = 0, breakerProbes
	b.left, b.next, b.pause = breakerProbes, 0, int64(breakerPause)
}

func (b *breaker) close() {
	*b = breaker{percent: b.percent, longest: b.longest, hurry: b.hurry, latest: b.latest[:0]}
}

// nextDeadline is when tick has something to do.
func (b *breaker) nextDeadline() (at int64, ok bool) { return b.next, b.open && b.next > 0 }

// tick begins the next round when it is time, and reports whether it did. A round that nobody took anything of lasts.
func (b *breaker) tick(now int64) (began bool) {
	if !b.open || b.next == 0 || b.next > now {
		return false
	}
	if b.rounds < breakerRounds {
		b.rounds++
	} else {
		b.size = min(2*b.size, breakerMost)
	}
	b.next, b.left = 0, b.size
	b.pause = min(b.pause, b.limit())
	return true
}

// counting reports whether failures count although it is open.
func (b *breaker) counting() bool { return b.rounds >= breakerRounds }

// gathers reports how many messages failed since the last success, while it is closed: they may be the beginning of an outage.
func (b *breaker) gathers() int { return int(b.row) }

// save is what restore goes on from; nil: nothing worth it, as while it is closed.
func (b *breaker) save() []byte {
	if !b.open {
		return nil
	}
	to := append(make([]byte, 0, breakerSaved), breakerVersion)
	to = binary.LittleEndian.AppendUint64(to, uint64(b.since))
	return binary.LittleEndian.AppendUint64(to, uint64(b.pause))
}

// restore opens it as another owner left it, with a round at once. Rounds are counted anew: the
// new owner has seen none of them. It goes by what it has seen itself, if it is open or anything failed here, and by nothing
// that it does not understand: then it is closed, which is safe.
func (b *breaker) restore(saved []byte, now int64) (opened bool) {
	if b.percent == 0 || b.open || len(b.latest) > 0 || len(saved) != breakerSaved || saved[0] != breakerVersion {
		return false
	}
	since, pause := int64(binary.LittleEndian.Uint64(saved[1:])), int64(binary.LittleEndian.Uint64(saved[9:]))
	if pause < int64(breakerPause) {
		return false
	}
	b.begin(min(since, now))
	b.pause = min(pause, b.limit())
	return true
}
