package dispatch

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

// breaker stops the deliveries of a group while nothing that it delivers succeeds, so that an outage of its workers
// exhausts no message; see adr/0051. It opens when 20 different messages failed in a row, beside others that succeeded
// 20 ms after the last of those, or 10 over three seconds, or when the group's percentage of the latest 50 outcomes are
// failures; five of them must be first attempts, since a tail of poison has only retries left. Open, it delivers
// nothing; half-open, it lets a round of probes go, with pauses that double up to a limit. Attempts that fail meanwhile
// do not count, and neither do the failures that opened it. It closes with one success, or with a percentage below 100
// when less than that share of its probes fail. When no first attempt failed for 15 rounds, what is left may be poison
// alone: failures count, and rounds grow, until a first attempt fails again or something succeeds. One that is open on
// another host of the group opens this one sooner, see elsewhere.
//
// Its scope is the group. The methods of a nil breaker are those of one that is closed and remembers nothing.
type breaker struct {
	latest  []failing // outcomes, the oldest first, of distinct messages as far as they failed
	row     uint8     // of the latest: failures since the last success, ≤ len(latest)
	percent uint8     // of failures that opens it; 0: off
	open    bool      // or half-open
	rounds  uint8     // begun since a first attempt failed, ≤ breakerRounds
	size    uint16    // messages of a round
	widest  uint16    // the limit of a round while failures do not count
	left    uint16    // of this round, not handed out yet: more than 0 while half-open
	before  mix       // of the outcomes up to the last success
	fails   uint16    // since then
	good    uint16    // probes that succeeded, and …
	bad     uint16    // … that failed, since they were last compared
	began   int64     // ns: when the first failure of the row was
	worked  int64     // ns: when something succeeded last …
	mixed   int64     // … and when that ended a row last
	since   int64     // ns: when it opened
	next    int64     // ns: when the next round begins; 0: nothing of this one is handed out
	pause   int64     // ns: after this round
	longest int64     // ns: the limit of a pause
	hurry   int64     // ns: the limit while failures count again
	elsewhere
}

const (
	breakerWindow  = 50                    // outcomes that are remembered
	breakerLeast   = 20                    // of these must be known, or have failed in a row …
	breakerFew     = 10                    // … or so many, over breakerQuiet
	breakerQuiet   = 3 * time.Second       // less than an exhausted message waits for the breaker, see routes
	breakerMixed   = 20 * time.Millisecond // without a success, where some failed and others succeeded …
	breakerUsual   = time.Second           // … so long ago or less
	breakerFirsts  = 5                     // failures of first attempts among them
	breakerProbes  = 4                     // messages of a round, at least
	breakerWide    = 32                    // or so many, with the longest pauses, in a group with unlimited deliveries
	breakerRounds  = 15                    // without the failure of a first attempt, until failures count again
	breakerMost    = 256                   // messages of a round then
	breakerFirst   = 128                   // messages of the first round, when few succeeded before; see mix
	breakerHurry   = 8                     // then pauses last up to this part of the lock timeout
	breakerPause   = time.Second           // after the first round
	breakerLongest = time.Minute           // or the lock timeout, if that is shorter, but at least breakerPause
	breakerVersion = 1                     // of what save makes
	breakerSaved   = 1 + 8 + 8             // bytes: version, since ns, pause ns
)

// mix is about how many of the latest outcomes were good and bad, twice breakerWindow at most. Where most messages fail
// at any time, many fail in a row by chance: so the first round has as many probes as let four of them succeed if the
// messages are as before, and each further one three quarters of that.
type mix struct{ good, bad uint16 }

// add counts n more outcomes up to a success, and fails failures before it.
func (m *mix) add(n, fails int) {
	const most = 2 * breakerWindow
	m.good, m.bad = m.good+uint16(min(n, most)), m.bad+uint16(min(fails, most))
	for m.good+m.bad > most {
		m.good, m.bad = (m.good+1)/2, m.bad/2 // the latest good one is not forgotten
	}
}

// probes are how many messages the first round has.
func (m *mix) probes() uint16 {
	if m.good == 0 {
		return breakerProbes
	}
	return min(breakerProbes*(m.good+m.bad)/m.good, breakerFirst)
}

// BreakerState is a state of a group's breaker.
type BreakerState string

const (
	BreakerClosed   BreakerState = "closed"    // everything is delivered, and every attempt counts
	BreakerOpen     BreakerState = "open"      // nothing is delivered before the next round of probes
	BreakerHalfOpen BreakerState = "half_open" // a few messages are delivered as probes
)

// failing is what became of one message's latest attempts.
type failing struct {
	id    core.Receipt // which message failed: a message of the retry queue is the one that it was before
	of    messageRef   // where it is now
	fails uint16       // failures since the last success before them; 0: it succeeded
	first bool         // a first attempt is among them
}

// newBreaker is that of a group; percent 0 switches it off.
func newBreaker(percent int, lockTimeout time.Duration, unlimited bool) *breaker {
	b := &breaker{latest: make([]failing, 0, breakerWindow)}
	b.set(percent, lockTimeout, unlimited)
	return b
}

// set gives it its rules; percent 0 closes it, and unlimited says that messages have no limit of deliveries.
func (b *breaker) set(percent int, lockTimeout time.Duration, unlimited bool) {
	b.percent, b.widest = uint8(percent), breakerProbes
	if unlimited {
		b.widest = breakerWide
	}
	if !b.counting() {
		b.size = min(b.size, b.widest)
	}
	b.longest = int64(min(breakerLongest, max(lockTimeout, breakerPause)))
	b.hurry = int64(min(breakerLongest, max(lockTimeout/breakerHurry, breakerPause)))
	if percent == 0 {
		b.close()
	}
}

func (b *breaker) state() BreakerState {
	switch {
	case !b.isOpen():
		return BreakerClosed
	case b.left > 0:
		return BreakerHalfOpen
	}
	return BreakerOpen
}

// isOpen reports whether it is open or half-open.
func (b *breaker) isOpen() bool { return b != nil && b.open }

// admit is how many messages may be handed out now.
func (b *breaker) admit(scope, int64) int {
	if !b.isOpen() {
		return math.MaxInt
	}
	return int(b.left)
}

// handed notes n messages handed out: probes.
func (b *breaker) handed(n int, now int64) {
	if !b.isOpen() || n == 0 {
		return
	}
	b.left -= uint16(min(n, int(b.left)))
	if b.next == 0 {
		b.next = now + b.pause
		b.pause = min(2*b.pause, b.limit())
	}
}

// limit of a pause. Messages that are left when failures count again are taken for poison, and need no patience.
func (b *breaker) limit() int64 {
	if b.counting() {
		return b.hurry
	}
	return b.longest
}

// outcome notes n > 0 successes in a row, or a failed attempt. counts says whether the attempt counts. led is what
// failed before, if it opens by this: those failures do not count either; it is valid until the next call.
func (b *breaker) outcome(_ scope, o outcome, now int64) (counts bool, led []failing) {
	switch {
	case b == nil || b.percent == 0:
		return true, nil
	case o.successes > 0:
		b.before.add(o.successes, int(b.fails))
		if b.worked = now; b.fails > 0 {
			b.mixed = now
		}
		b.fails = 0
		b.succeeded(o.successes)
		return true, nil
	}
	b.fails = saturate(b.fails)
	switch {
	case b.open:
		b.failedAt = now
		if o.first && b.counting() {
			b.size = breakerProbes
		}
		if o.first {
			b.rounds = 0
		}
		counts = b.counting()
		b.bad = saturate(b.bad)
		b.compare()
		return counts, nil
	case o.others:
		return true, nil
	}
	b.fail(o, now)
	if !b.trips(now) {
		return true, b.follow(now)
	}
	led = b.latest
	b.begin(now)
	return true, led
}

// succeeded notes n successes. Frequent.
func (b *breaker) succeeded(n int) {
	switch {
	case b.open && b.percent == core.BreakerAlways:
		b.close()
	case b.open:
		b.good = uint16(min(int(b.good)+n, math.MaxUint16))
		b.compare()
	case len(b.latest) == 0:
	case b.percent == core.BreakerAlways || n >= breakerWindow: // what failed before matters no more
		b.latest, b.row = b.latest[:0], 0
	default:
		b.push(n, failing{})
		b.row = 0
	}
}

// compare closes it when enough probes succeeded.
func (b *breaker) compare() {
	known := int(b.good) + int(b.bad)
	if known < breakerProbes {
		return
	}
	if int(b.bad)*100 < int(b.percent)*known {
		b.close()
		return
	}
	b.good, b.bad = 0, 0
}

// fail notes a failure, in place of an earlier one of the same message.
func (b *breaker) fail(o outcome, now int64) {
	x := failing{id: o.id, of: o.of, fails: 1, first: o.first}
	for i, y := range b.latest {
		if y.fails == 0 || y.id != o.id {
			continue
		}
		if i >= len(b.latest)-int(b.row) { // else a success is between the two
			x.fails, x.first = saturate(y.fails), o.first || y.first
			b.row--
		}
		b.latest = append(b.latest[:i], b.latest[i+1:]...)
		break
	}
	b.push(1, x)
	if b.failedAt = now; b.row == 0 && x.fails == 1 {
		b.began = now
	}
	b.row = min(b.row+1, breakerWindow)
}

// push appends an outcome n times, and forgets the oldest ones.
func (b *breaker) push(n int, x failing) {
	if drop := len(b.latest) + n - breakerWindow; drop > 0 {
		b.latest = b.latest[:copy(b.latest, b.latest[drop:])]
	}
	for range n {
		b.latest = append(b.latest, x)
	}
}

// trips reports whether so much failed that it opens.
func (b *breaker) trips(now int64) bool {
	tell := func(of []failing) (failed, first int) {
		for _, x := range of {
			if x.fails > 0 {
				failed++
			}
			if x.first {
				first++
			}
		}
		return failed, first
	}
	if b.row >= breakerLeast && !b.mixes(now) || b.row >= breakerFew && now-b.began >= int64(breakerQuiet) {
		if _, first := tell(b.latest[len(b.latest)-int(b.row):]); first >= breakerFirsts {
			return true
		}
	}
	if b.percent == core.BreakerAlways || len(b.latest) < breakerLeast {
		return false
	}
	failed, first := tell(b.latest)
	return first >= breakerFirsts && failed*100 >= int(b.percent)*len(b.latest)
}

// mixes reports whether failures in a row may be mere chance: consumers send several nacks before acks that belong
// between them, and what several consumers send comes mixed.
func (b *breaker) mixes(now int64) bool {
	return b.mixed > 0 && now-b.mixed < int64(breakerUsual) && now-b.worked < int64(breakerMixed)
}

// begin opens it, with a round of probes at once.
func (b *breaker) begin(now int64) {
	b.open, b.since = true, now
	b.spend()
	b.latest, b.row = b.latest[:0], 0
	b.rounds, b.size, b.good, b.bad = 0, breakerProbes, 0, 0
	if b.percent == core.BreakerAlways { // else one success does not close it
		b.size = b.before.probes()
	}
	b.left, b.next, b.pause = b.size, 0, int64(breakerPause)
}

func (b *breaker) close() {
	b.followed = false
	*b = breaker{percent: b.percent, widest: b.widest, longest: b.longest, hurry: b.hurry, latest: b.latest[:0], before: b.before, fails: b.fails, worked: b.worked, mixed: b.mixed, elsewhere: b.elsewhere}
}

// nextDeadline is when tick or follow has something to do.
func (b *breaker) nextDeadline(now int64) int64 {
	switch {
	case b.mayFollow(now):
		return b.worked + int64(breakerUsual)
	case !b.isOpen() || b.next == 0:
		return never
	}
	return b.next
}

// tick begins the next round when it is time, and reports whether it did. A round that nobody took anything of lasts.
func (b *breaker) tick(now int64) (began bool) {
	if !b.isOpen() || b.next == 0 || b.next > now {
		return false
	}
	switch {
	case b.counting():
		b.size = min(2*b.size, breakerMost)
	case b.pause >= b.longest && b.size < b.widest:
		b.size = min(2*b.size, b.widest)
	default:
		b.size = max(b.size*3/4, min(b.size, b.widest))
	}
	b.rounds = min(b.rounds+1, breakerRounds)
	b.next, b.left = 0, b.size
	b.pause = min(b.pause, b.limit())
	return true
}

// counting reports whether failures count although it is open.
func (b *breaker) counting() bool { return b.rounds >= breakerRounds && b.lasts == 0 }

// asksForFirst reports whether one of the probes should be a first attempt, for lack of which failures would soon
// count, or do already: only its outcome tells an outage from poison.
func (b *breaker) asksForFirst() bool { return b.isOpen() && b.left > 0 && b.rounds >= breakerRounds/2 }

// gathers is how many messages failed since the last success, while it is closed: they may be the beginning of an
// outage.
func (b *breaker) gathers() int {
	if b == nil {
		return 0
	}
	return int(b.row)
}

// save is what restore goes on from; nil: nothing worth it, as while it is closed, or follows another one.
func (b *breaker) save() []byte {
	if !b.isOpen() || b.followed {
		return nil
	}
	to := append(make([]byte, 0, breakerSaved), breakerVersion)
	to = binary.LittleEndian.AppendUint64(to, uint64(b.since))
	return binary.LittleEndian.AppendUint64(to, uint64(b.pause))
}

// restore opens it as another owner left it, with a round at once. Rounds are counted anew: the new owner has seen none
// of them. It goes by what it has seen itself, if it is open or anything failed here, and by nothing that it does not
// understand: then it is closed, which is safe.
func (b *breaker) restore(saved []byte, now int64) (opened bool) {
	if b.percent == 0 || len(b.latest) > 0 || len(saved) != breakerSaved || saved[0] != breakerVersion {
		return false
	}
	since, pause := int64(binary.LittleEndian.Uint64(saved[1:])), int64(binary.LittleEndian.Uint64(saved[9:]))
	if pause < int64(breakerPause) {
		return false
	}
	if b.open {
		b.followed = false // the one that it followed may be this one
		return false
	}
	b.begin(min(since, now))
	b.failedAt = now
	b.pause = min(pause, b.limit())
	return true
}
