package dispatch

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestBreaker_SaveRestore goes on where another one was: at once with a round, and with the pause of before, and counts
// rounds anew.
func TestBreaker_SaveRestore(t *testing.T) {
	for _, rounds := range []int{0, 3, breakerRounds - 1, breakerRounds, breakerRounds + 3} {
		b := minuteBreaker(core.BreakerAlways)
		if b.save() != nil {
			t.Fatal("a closed breaker has something to save")
		}
		b.failAll(1, breakerLeast, true)
		now := sec
		for range rounds {
			b.round(&now, false)
		}
		saved := b.save()
		if len(saved) > 64 || saved[0] != breakerVersion {
			t.Fatalf("saved are %d bytes, version %d", len(saved), saved[0])
		}
		next := minuteBreaker(core.BreakerAlways)
		if !next.restore(saved, now) || next.since != b.since || next.rounds != 0 || next.pause != b.pause || next.admit(groupScope, 0) != breakerProbes {
			t.Errorf("after %d rounds:\n%+v became\n%+v", rounds, b, next)
		}
		if next.restore(saved, now) {
			t.Error("it opened twice")
		}
	}
}

// A state that it does not understand does not open it; nor does anything if it is off, or knows better.
func TestBreaker_RestoreNothing(t *testing.T) {
	b := minuteBreaker(core.BreakerAlways)
	b.failAll(1, breakerLeast, true)
	saved := b.save()
	change := func(at int, to byte) []byte {
		x := append([]byte(nil), saved...)
		x[at] = to
		return x
	}
	negative := append([]byte(nil), saved...)
	binary.LittleEndian.PutUint64(negative[9:], math.MaxUint64)
	for name, bytes := range map[string][]byte{
		"nothing": nil, "short": saved[:len(saved)-1], "long": append(append([]byte(nil), saved...), 0), "version": change(0, breakerVersion+1),
		"pause": negative,
	} {
		if x := minuteBreaker(core.BreakerAlways); x.restore(bytes, sec) || x.open {
			t.Errorf("%s: it opened", name)
		}
	}
	if x := newBreaker(0, time.Minute, false); x.restore(saved, sec) {
		t.Error("it is off, and opened")
	}
	x := minuteBreaker(core.BreakerAlways)
	x.failAll(1, 1, true)
	if x.restore(saved, sec) {
		t.Error("it has seen outcomes, and goes by others")
	}
}
