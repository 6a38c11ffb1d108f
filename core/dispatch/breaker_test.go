package dispatch

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

const sec = int64(time.Second)

// minuteBreaker is one that opens at a percentage, in a group with a lock timeout of a minute.
func minuteBreaker(percent int) *breaker { return newBreaker(percent, time.Minute, false) }

// failed notes the failure of a message.
func (b *breaker) failed(of messageRef, first bool, now int64) (counts bool, led []failing) {
	return b.outcome(groupScope, outcome{id: core.Receipt{Seq: of.seq}, of: of, first: first}, now)
}

// failAll has messages from key on fail, and says how many failures counted and whether the breaker opened.
func (b *breaker) failAll(key, n int, first bool) (counted int, opened bool) {
	for i := range n {
		counts, led := b.failed(messageRef{seq: core.Seq(key + i)}, first, sec)
		if counts {
			counted++
		}
		opened = opened || led != nil
	}
	return counted, opened
}

// round hands out a round of probes, of which first ones and others fail, and goes on to the next.
func (b *breaker) round(now *int64, first bool) (probes, counted int) {
	probes = b.admit(groupScope, 0)
	b.handed(probes, *now)
	counted, _ = b.failAll(1000, probes, first)
	at := b.nextDeadline(0)
	*now = at
	b.tick(at)
	return probes, counted
}

// TestBreaker_OpensByFailuresInARow needs twenty messages, five of them fresh, and nothing that succeeds between them.
func TestBreaker_OpensByFailuresInARow(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	if _, opened := b.failAll(1, breakerLeast-1, true); opened || b.admit(groupScope, 0) != math.MaxInt {
		t.Fatal("it opened by 19 messages")
	}
	if _, opened := b.failAll(1, breakerLeast-1, false); opened {
		t.Fatal("it opened by 19 messages that failed twice")
	}
	b.succeeded(1)
	if _, opened := b.failAll(1, breakerLeast-1, true); opened {
		t.Fatal("it opened by what failed before a success")
	}
	if counted, opened := b.failAll(100, 1, true); !opened || counted != 1 {
		t.Fatalf("twenty messages in a row: opened %v; the last one counted %d times, want once", opened, counted)
	}
}

// TestBreaker_SlowGroup opens by ten messages that failed in a row, when the first one failed three seconds ago: an
// exhausted message does not wait for longer than five.
func TestBreaker_SlowGroup(t *testing.T) {
	for _, x := range []struct {
		n     int
		every time.Duration
		want  bool
	}{
		{n: breakerFew, every: 500 * time.Millisecond, want: true},
		{n: breakerFew, every: time.Hour, want: true},
		{n: breakerFew - 1, every: time.Hour},
		{n: breakerLeast - 1, every: 10 * time.Millisecond},
		{n: breakerFew, every: (breakerQuiet - 1) / (breakerFew - 1)},
	} {
		b := minuteBreaker(core.BreakerAlways)
		for i := range x.n {
			b.failed(messageRef{seq: core.Seq(i + 1)}, true, sec+int64(i)*int64(x.every))
		}
		if b.open != x.want {
			t.Errorf("%d failures, one every %s: open %v", x.n, x.every, b.open)
		}
	}
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(1, breakerFew, true)
	b.outcome(groupScope, outcome{successes: 1}, sec)
	for i := range breakerFew {
		b.failed(messageRef{seq: core.Seq(i + 1)}, true, 10*sec)
	}
	if b.open {
		t.Error("it opened by what failed before a success")
	}
}

// TestBreaker_OthersSucceed: a lock that times out while others succeed tells of its consumer. It counts, and opens
// nothing.
func TestBreaker_OthersSucceed(t *testing.T) {
	b := minuteBreaker(50)
	for i := range 1000 {
		counts, led := b.outcome(groupScope, outcome{of: messageRef{seq: core.Seq(i + 1)}, first: true, others: true}, sec*int64(i))
		if !counts || led != nil || b.open {
			t.Fatalf("counts %v, opened by %v", counts, led)
		}
	}
	b.failAll(1, breakerLeast, true)
	if counts, _ := b.outcome(groupScope, outcome{of: messageRef{seq: 1}, first: true, others: true}, sec); counts {
		t.Error("it counts while the breaker is open")
	}
}

// TestBreaker_ClosesByAShare: in a group with a percentage below 100 one success tells nothing; it is open until less
// than that share of the probes fails.
func TestBreaker_ClosesByAShare(t *testing.T) {
	for _, x := range []struct {
		percent, good, bad int
		open               bool
	}{
		{percent: 50, good: 1, open: true}, // nothing is known yet
		{percent: 50, good: 2, bad: 2, open: true},
		{percent: 50, good: 3, bad: 1},
		{percent: 50, good: 4},
		{percent: 10, good: 3, bad: 1, open: true},
		{percent: 99, good: 1, bad: 3},
		{percent: core.BreakerAlways, good: 1},
	} {
		b := minuteBreaker(x.percent)
		b.failAll(1, breakerLeast, true)
		for range x.good {
			b.outcome(groupScope, outcome{successes: 1}, sec)
		}
		b.failAll(1, x.bad, false)
		if b.open != x.open {
			t.Errorf("%d%%, %d succeeded, %d failed: open %v", x.percent, x.good, x.bad, b.open)
		}
	}
}

// TestBreaker_TailOfPoison stays closed: what fails has failed before, while others succeeded.
func TestBreaker_TailOfPoison(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(1, 10, true)
	b.succeeded(1)
	b.failAll(1, breakerFirsts-1, true)
	for range 10 {
		if counted, opened := b.failAll(1, 60, false); opened || counted != 60 {
			t.Fatalf("opened %v, %d of 60 failures counted", opened, counted)
		}
	}
}

// TestBreaker_OpensByAShare goes by the latest fifty outcomes, of at least twenty messages.
func TestBreaker_OpensByAShare(t *testing.T) {
	for _, x := range []struct {
		percent, fail, of int
		first, want       bool
	}{
		{percent: 50, fail: 9, of: 19, first: true},
		{percent: 50, fail: 10, of: 20, first: true, want: true},
		{percent: 50, fail: 10, of: 20},
		{percent: 50, fail: 24, of: 50, first: true},
		{percent: 50, fail: 25, of: 50, first: true, want: true},
		{percent: 10, fail: 4, of: 20, first: true}, // too few first attempts
		{percent: 10, fail: 5, of: 50, first: true, want: true},
		{percent: 80, fail: 19, of: 25, first: true},
		{percent: core.BreakerAlways, fail: 49, of: 50, first: true, want: true}, // twenty in a row are in there
	} {
		b := minuteBreaker(x.percent)
		for i := range x.of { // spread evenly, the last one a failure
			if (i+1)*x.fail/x.of > i*x.fail/x.of {
				b.failed(messageRef{seq: core.Seq(i + 1)}, x.first, sec)
			} else {
				b.push(1, failing{}) // also before the first failure
				b.row = 0
			}
		}
		if b.open != x.want {
			t.Errorf("%d%%: %d of %d failed, first attempts: %v; open %v", x.percent, x.fail, x.of, x.first, b.open)
		}
	}
}

// TestBreaker_ForgetsTheOldest: fifty successes later nothing of a failure is left.
func TestBreaker_ForgetsTheOldest(t *testing.T) {
	b := minuteBreaker(10)
	for range 10 {
		if _, opened := b.failAll(1, 4, true); opened {
			t.Fatal("it opened by failures that were not among the latest fifty outcomes")
		}
		for range breakerWindow {
			b.succeeded(1)
		}
		if len(b.latest) != breakerWindow || cap(b.latest) != breakerWindow {
			t.Fatalf("it remembers %d outcomes, in room for %d", len(b.latest), cap(b.latest))
		}
	}
}

// TestBreaker_ProbesWithGrowingPauses: four at a time, after 1 s, 2 s, 4 s … a minute; none of them counts, and one
// success closes it.
func TestBreaker_ProbesWithGrowingPauses(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(1, breakerLeast, true)
	now := sec
	for i := range 10 {
		began := now
		probes, counted := b.round(&now, i%2 == 0)
		if want := min(breakerPause<<i, breakerLongest); probes != breakerProbes || counted != 0 || now-began != int64(want) {
			t.Fatalf("round %d: %d probes, %d counted, a pause of %s; want one of %s", i, probes, counted, time.Duration(now-began), want)
		}
	}
	b.succeeded(1)
	if b.open || b.admit(groupScope, 0) != math.MaxInt {
		t.Fatal("it is not closed by a success")
	}
	if waits := b.nextDeadline(0) != never; waits {
		t.Fatal("it has a deadline while it is closed")
	}
}

// TestBreaker_WideRounds: without a limit of deliveries rounds double to 32 probes, once pauses are a minute, and are
// of four again when there is a limit.
func TestBreaker_WideRounds(t *testing.T) {
	b := newBreaker(core.BreakerAlways, time.Minute, true)
	b.failAll(1, breakerLeast, true)
	now := sec
	for i := range 10 {
		began := now
		probes, counted := b.round(&now, i%2 == 0)
		want, pause := min(breakerProbes<<max(0, i-5), breakerWide), min(breakerPause<<i, breakerLongest)
		if probes != want || counted != 0 || now-began != int64(pause) {
			t.Fatalf("round %d: %d probes, %d counted, a pause of %s; want %d, and %s", i, probes, counted, time.Duration(now-began), want, pause)
		}
	}
	b.set(core.BreakerAlways, time.Minute, false)
	b.round(&now, true) // had begun before
	if probes, _ := b.round(&now, true); probes != breakerProbes {
		t.Errorf("a round of %d probes with a limit of deliveries, want %d", probes, breakerProbes)
	}
}

// A round lasts until somebody takes of it: the time in which nobody consumes tells nothing.
func TestBreaker_RoundsNeedConsumers(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(1, breakerLeast, true)
	for i := range int64(1000) {
		b.tick(i * int64(time.Hour))
	}
	if waits := b.nextDeadline(0) != never; waits || b.rounds != 0 || b.admit(groupScope, 0) != breakerProbes {
		t.Fatalf("%d rounds passed, %d probes are left", b.rounds, b.admit(groupScope, 0))
	}
}

// A pause is never longer than the lock timeout, nor shorter than a second.
func TestBreaker_PauseOfShortLocks(t *testing.T) {
	for lock, want := range map[time.Duration]time.Duration{time.Second: time.Second, 5 * time.Second: 5 * time.Second, time.Hour: time.Minute} {
		b := newBreaker(core.BreakerAlways, lock, false)
		b.failAll(1, breakerLeast, true)
		now, began := sec, int64(0)
		for range 10 {
			began = now
			b.round(&now, true)
		}
		if got := time.Duration(now - began); got != want {
			t.Errorf("locks of %s: pauses of %s, want %s", lock, got, want)
		}
	}
}

// TestBreaker_PoisonIsNotProtectedForEver: fifteen rounds without the failure of a first attempt later each failure
// counts, and rounds grow, until a first attempt fails again.
func TestBreaker_PoisonIsNotProtectedForEver(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(1, breakerLeast, true)
	now := sec
	for i := range breakerRounds {
		if _, counted := b.round(&now, false); counted != 0 {
			t.Fatalf("round %d: %d failures counted", i, counted)
		}
	}
	for want := breakerProbes; want < 2*breakerMost; want *= 2 {
		began := now
		probes, counted := b.round(&now, false)
		if probes != min(want, breakerMost) || counted != probes {
			t.Fatalf("%d probes, %d counted; want %d", probes, counted, min(want, breakerMost))
		}
		if pause := now - began; pause > int64(time.Minute/breakerHurry) {
			t.Fatalf("a pause of %s", time.Duration(pause))
		}
	}
	b.failed(messageRef{seq: 1}, true, now)
	if _, counted := b.round(&now, false); counted != 0 {
		t.Errorf("a first attempt failed, and %d failures count", counted)
	}
	if n := b.admit(groupScope, 0); n != breakerProbes {
		t.Errorf("a round of %d then", n)
	}
}

// TestBreaker_Off counts all and hands out all, and closes one that is open.
func TestBreaker_Off(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(1, breakerLeast, true)
	b.set(0, time.Minute, false)
	if counted, opened := b.failAll(1, 1000, true); opened || counted != 1000 || b.admit(groupScope, 0) != math.MaxInt || len(b.latest) > 0 {
		t.Errorf("opened %v, %d of 1000 counted, admits %d", opened, counted, b.admit(groupScope, 0))
	}
}

// TestBreaker_Properties: whatever happens, it is never open for ever without a round to take or a deadline, a round is
// bounded, nothing but a success or the switch closes it, and only what fails while it is open may not count.
func TestBreaker_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent, lock := rapid.SampledFrom([]int{0, 1, 10, 50, 99, 100}).Draw(t, "percent"), time.Duration(rapid.IntRange(1, 3600).Draw(t, "lock"))*time.Second
		unlimited := rapid.Bool().Draw(t, "unlimited")
		b := newBreaker(percent, lock, unlimited)
		now, heard := sec, uint64(0)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			was, restored := b.open, false
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				n := rapid.IntRange(1, 100).Draw(t, "successes")
				b.outcome(groupScope, outcome{successes: n}, now)
				if b.open && (percent == core.BreakerAlways || n > breakerProbes*100) {
					t.Fatal("a success did not close it")
				}
				was = false
			case 1, 2, 3:
				for range rapid.IntRange(1, 30).Draw(t, "failures") {
					open := b.open
					counts, led := b.failed(messageRef{seq: core.Seq(rapid.IntRange(1, 200).Draw(t, "seq"))}, rapid.Bool().Draw(t, "first"), now)
					if !counts && !open || (led != nil) != (b.open && !open) {
						t.Fatalf("counts %v, led by %v; it was open: %v", counts, led, open)
					}
					was = was && percent == core.BreakerAlways // else a share of probes closes it
				}
			case 4:
				b.handed(min(b.admit(groupScope, 0), rapid.IntRange(1, 300).Draw(t, "handed")), now)
			case 5:
				now += rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "time")
				b.follow(now)
				b.tick(now)
			case 6:
				heard++
				row := b.row
				if led := b.hear(rapid.SampledFrom([]uint64{0, heard, heard - 1}).Draw(t, "opening"), now); led != nil && (was || len(led) != int(row) || !b.followed || b.lasts == 0) {
					t.Fatalf("%d failures in a row, led by %v", row, led)
				}
			default:
				next := newBreaker(percent, lock, unlimited)
				if next.restore(b.save(), now) != (b.open && !b.followed) {
					t.Fatal("what was saved is not restored")
				}
				b, restored = next, true
			}
			if was && !b.open && !restored {
				t.Fatal("it closed without a success")
			}
			at := b.nextDeadline(0)
			waits := at != never
			if b.open && b.admit(groupScope, 0) == 0 && !waits {
				t.Fatal("it is open, without a probe or a deadline")
			}
			if b.open && (b.admit(groupScope, 0) > breakerMost || waits && at > now+int64(breakerLongest)) {
				t.Fatalf("a round of %d, the next one in %s", b.admit(groupScope, 0), time.Duration(at-now))
			}
			if err := b.check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
