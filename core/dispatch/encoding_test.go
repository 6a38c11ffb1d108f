package dispatch

import (
	"bytes"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

// goldens are blobs as builds wrote them whose newest version it was.
var goldens = map[byte]string{
	1: "01020101000700000402a0bcacfef962010019018f4e056c6174657200001e010362616400000a04000002030000020101000001c0dbacfef9620d9a9087",
	2: "020201002501005555555555555555555555555555555555555555555555555555555555555555555555070000240201a0bcacfef962010019018f4e056c6174657200001e010362616400002a040100002203010000020101000001c0dbacfef9625a2a02bd",
	3: "030201002501005555555555555555555555555555555555555555555555555555555555555555555555090000240201a0bcacfef962010019018f4e056c6174657200001e010362616400002a040100002203010000020101000001c0dbacfef96200007b0301c0feb50304776169740673746570203200004001bf81b503016de81e7d26",
	4: "040101026f6e02010025010055555555555555555555555555555555555555555555555555555555555555555555550c0000440201a0bcacfef962010029018f4e056c6174657200002f01036261640000cb0804010000931002000093180001000001b06d0000eb030301c0feb5030477616974067374657020320000800101bf81b503016d000006030000c880010302a09c01000080800201a09c018d3be89b",
	5: "050101026f6e02010000000000000000000000000000008080f9c0c1c48203020000000000000000000000000000000102010025010055555555555555555555555555555555555555555555555555555555555555555555550c0000440201a0bcacfef962010029018f4e056c6174657200002f01036261640000cb0804010000931002000093180001000001b06d0000eb030301c0feb5030477616974067374657020320000800101bf81b503016d000006030000c880010302a09c01000080800201a09c01b1a0448c",
}

func goldenDue(seconds int) int64 {
	return time.UnixMilli(1_700_000_000_000).UnixMilli() + int64(seconds)*1000
}

// goldenEntries is what the goldens of a version say.
func goldenEntries(version byte) map[core.Seq]entry {
	out := map[core.Seq]entry{
		3:  {kind: kindLocked, attempts: 2, due: goldenDue(10), failure: LockTimedOut},
		5:  {kind: kindWaiting, attempts: 1, due: goldenDue(5), failure: Nacked, text: "later"},
		6:  {kind: kindTransferring, reason: Failed, attempts: 1, failure: Rejected, text: "bad"},
		7:  {kind: kindTransferring, reason: Exhausted, attempts: 4, failure: Nacked},
		8:  {kind: kindTransferring, reason: ExpiredRetry, attempts: 2},
		9:  {kind: kindTransferring, reason: Swept},
		11: {kind: kindLocked, attempts: 1, due: goldenDue(12)},
	}
	if version > 1 {
		for _, seq := range []core.Seq{3, 7, 8} {
			e := out[seq]
			e.notCounted = 1
			out[seq] = e
		}
	}
	if version > 2 {
		out[12] = entry{kind: kindTransferring, to: RetryQueue, reason: Failed, attempts: 3, notCounted: 1, due: goldenDue(3600), failure: Nacked, metadata: "step 2", text: "wait"}
		out[13] = entry{kind: kindLocked, attempts: 1, due: goldenDue(20), metadata: "m"}
	}
	if version > 3 {
		for _, seq := range []core.Seq{8, 9} {
			e := out[seq]
			e.failure = Expired
			e.notCounted = 0
			out[seq] = e
		}
		out[14] = entry{kind: kindBlocked, attempts: 3, failure: LockTimedOut}
		out[15] = entry{kind: kindLocked, attempts: 3, notCounted: 2, unsure: 2, due: goldenDue(30), failure: Nacked}
		out[16] = entry{kind: kindLocked, attempts: 1, held: true, due: goldenDue(40)}
	}
	return out
}

// TestDecodeState_Goldens reads what each version wrote, and what is written of that as what it was.
func TestDecodeState_Goldens(t *testing.T) {
	for version, text := range goldens {
		blob, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		st := decode(t, blob)
		want := goldenEntries(version)
		if diff := cmp.Diff(want, st.plain(), cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", version, diff)
		}
		if want := goldenState().covers; version == stateVersion && !slices.Equal(st.covers, want) || version < stateVersion && st.covers != nil {
			t.Errorf("version %d covers %v, want %v", version, st.covers, want)
		}
		if st.Frontier() != 2 || !st.done.Done(4) || st.done.Done(22) != (version > 1) {
			t.Errorf("version %d: frontier %d, done %v", version, st.Frontier(), st.done)
		}
		again := st.Append(nil)
		if again[0] != stateVersion || version == stateVersion && !bytes.Equal(again, blob) {
			t.Errorf("version %d is written again as %x", version, again)
		}
		if diff := cmp.Diff(want, decode(t, again).plain(), cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("version %d, once upgraded (-want +got):\n%s", version, diff)
		}
	}
}

// TestDecodeState_OldWindows: version 1 has ranges only, however many; versions after it have the shorter form only.
func TestDecodeState_OldWindows(t *testing.T) {
	var holes State
	ranges := []byte{plainVersion, 0, 0xf4, 0x03} // 500 ranges, 1 seq each, after 1 undone each
	for i := range 500 {
		holes.done.Ack(core.Seq(2*i + 2))
		ranges = append(ranges, 1, 0)
	}
	blob := holes.Append(nil)
	bits := append([]byte{bitsVersion}, blob[3:len(blob)-4]...) // without policies and covers
	if len(blob) > 140 {
		t.Errorf("500 holes are written in %d bytes", len(blob))
	}
	for what, b := range map[string][]byte{"bits": bits, "ranges": append(ranges, 0)} {
		st := decode(t, seal(b))
		if again := st.Append(nil); !bytes.Equal(again, blob) {
			t.Errorf("%s decode to something else: %x", what, again)
		}
	}
	for what, b := range map[string][]byte{
		"bits in version 1":            append([]byte{plainVersion}, bits[1:]...),
		"too many ranges in version 2": append([]byte{bitsVersion}, append(ranges, 0)[1:]...),
	} {
		if _, err := DecodeState(seal(b)); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// TestDecodeState_UnknownFlags refuses what has no meaning in version 5: a build that gives it one writes another
// version.
func TestDecodeState_UnknownFlags(t *testing.T) {
	blob := func(flags ...byte) []byte { // one entry: seq 1, 1 attempt, due 1 if there is room for one
		return append(append([]byte{stateVersion, 0, 0, 0, 0, 1, 0, 0}, flags...), 1, 2)
	}
	if _, err := DecodeState(seal(blob(0))); err != nil {
		t.Fatalf("a locked message: %v", err)
	}
	for what, b := range map[string][]byte{
		"a failure":                         blob(5 << failureShift),
		"a destination of a locked message": blob(0x80, 1<<toShift>>7),
		"a reason of a locked message":      blob(0x80, 1<<reasonShift>>7),
		"a destination":                     blob(0x83, 2<<toShift>>7),
		"a reason":                          blob(0x83, 4<<reasonShift>>7),
		"a bit":                             blob(0x80, 0x80, 1<<flagBits>>14),
		"an unsure attempt that counts":     blob(0x80, 1<<unsureShift>>7),
		"a blocked message that is held":    blob(0x80|byte(kindBlocked), 0x80, heldBit>>14),
		"a message without an attempt":      {stateVersion, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2},
	} {
		if _, err := DecodeState(seal(b)); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s that is not known: got %v", what, err)
		}
	}
}

// TestPolicies_AreKept has the state of a policy go from one owner to the next, by a checkpoint or a hand-over, and
// merges those of two.
func TestPolicies_AreKept(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	save(s, start)
	if err := g.SetPolicy(PolicyBreaker, []byte("open")); err != nil || !s.Changed() {
		t.Fatalf("%v, changed %v", err, s.Changed())
	}
	st := decode(t, save(s, start))
	if err := g.SetPolicy(PolicyBreaker, []byte("open")); err != nil || s.Changed() {
		t.Fatalf("the same once more: %v, changed %v", err, s.Changed())
	}
	given := s.State(start)
	for what, st := range map[string]State{"a checkpoint": st, "a hand-over": given, "what a hand-over saves": decode(t, given.Append(nil))} {
		if got := st.Policy(PolicyBreaker); string(got) != "open" {
			t.Errorf("%s keeps %q", what, got)
		}
	}
	var first State
	first.Merge(StartAfter(1))
	first.Merge(st)
	other := StartAfter(1)
	other.policies[PolicyBreaker-1], other.told = "closed", true
	first.Merge(other)
	if got := first.Policy(PolicyBreaker); string(got) != "open" || first.Policy(9) != nil {
		t.Errorf("merged: %q", got)
	}
	if err := g.SetPolicy(PolicyBreaker, nil); err != nil || decode(t, save(s, start)).Policy(PolicyBreaker) != nil {
		t.Errorf("it is still kept, %v", err)
	}
	later := decode(t, save(s, start)) // the breaker is closed, and a checkpoint of an owner before it is still there
	later.Merge(st)
	if got := later.Policy(PolicyBreaker); got != nil {
		t.Errorf("after a later owner that told of none it is %q", got)
	}
	for state, code := range map[string]core.Code{strings.Repeat("x", MaxPolicies-4): "", strings.Repeat("x", MaxPolicies-3): core.CodeTooLarge} {
		if err := g.SetPolicy(PolicyBreaker, []byte(state)); err == nil != (code == "") || err != nil && core.CodeOf(err) != code {
			t.Errorf("%d bytes: %v", len(state), err)
		}
	}
	for _, id := range []uint8{0, PolicyBreaker + 1} {
		if err := g.SetPolicy(id, []byte("x")); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("policy %d: %v", id, err)
		}
	}
}

// TestDecodeState_UnknownPolicies leaves out what a later build may know, and refuses sections that are too large or
// out of order.
func TestDecodeState_UnknownPolicies(t *testing.T) {
	with := func(policies ...byte) []byte {
		return seal(append(append([]byte{stateVersion}, policies...), 0, 7, 0, 0))
	}
	st := decode(t, with(2, PolicyBreaker, 2, 'o', 'n', 200, 3, 'a', 'b', 'c'))
	if got := st.Policy(PolicyBreaker); string(got) != "on" || st.Policy(200) != nil || st.Frontier() != 7 {
		t.Errorf("policy %q, frontier %d", got, st.Frontier())
	}
	if again := decode(t, st.Append(nil)); string(again.Policy(PolicyBreaker)) != "on" {
		t.Errorf("it is written again as %q", again.Policy(PolicyBreaker))
	}
	large := append([]byte{1, 200, 0xff, 0x07}, bytes.Repeat([]byte{1}, 1023)...)
	for what, b := range map[string][]byte{
		"too large": with(large...), "twice": with(2, 200, 0, 200, 0), "out of order": with(2, 200, 0, 1, 0), "cut off": seal([]byte{stateVersion, 1, 1, 9, 'x'}), "policy 0": with(1, 0, 0),
	} {
		if _, err := DecodeState(b); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// TestState_BlockedMayBeDead: what was on its way to the dead letter queue when a group began to block may be there,
// and no checkpoint forgets that.
func TestState_BlockedMayBeDead(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 2)
	take(g, 2, start)
	s.Reject(1, 1, nil, start)
	st := decode(t, save(s, start))
	block := core.GroupSpec{Exhausted: core.ExhaustedBlock}.WithDefaults()
	for range 2 { // over two owners
		g = NewGroup(block)
		s = g.AddShare(extent(1), st, start)
		offer(t, s, 2)
		if g.Depth().Blocked != 1 {
			t.Fatalf("%+v, want one blocked", g.Depth())
		}
		st = decode(t, save(s, start))
	}
	g.Update(core.GroupSpec{}.WithDefaults(), start)
	if dead := takeDead(g, 9); len(dead) != 1 || !dead[0].Again {
		t.Errorf("%+v leave, want one that is looked for", dead)
	}

	g, s = newShare(t, block, 1)
	take(g, 1, start)
	s.Reject(1, 1, nil, start)
	st = decode(t, save(s, start))
	if p := st.Standing(1).Place; p != PlaceBlocked || st.Dies() {
		t.Errorf("one that was always blocked is %s", p)
	}
	g = NewGroup(core.GroupSpec{}.WithDefaults())
	s = g.AddShare(extent(1), st, start)
	offer(t, s, 1)
	save(s, start)
	if dead := g.TakeTransfers(DeadLetterQueue, 9, nil); len(dead) != 1 || dead[0].Again {
		t.Errorf("after the group was changed %+v leave, want one that is nowhere else", dead)
	}
}

// goldenState makes the golden of the version that is written.
func goldenState() State {
	st := StartAfter(2)
	st.done.Ack(4)
	for seq := core.Seq(20); seq < 300; seq += 2 {
		st.done.Ack(seq)
	}
	st.policies[PolicyBreaker-1] = "on"
	st.covers = covers{{Run: runOf(1), Written: 1_700_000_000_000_000}, {Run: runOf(2), Written: 1}}
	st.messages = maps.Clone(goldenEntries(stateVersion))
	return st
}

func TestState_Golden(t *testing.T) {
	st := goldenState()
	if got := hex.EncodeToString(st.Append(nil)); got != goldens[stateVersion] {
		t.Errorf("written as %s", got)
	}
}

// TestState_ShiftedDeadlines saves deadlines that came long ago, and the latest one there is, after a clock was found
// to be wrong: by owners of a crowded share, and by a hand-over. Saved states can be read.
func TestState_ShiftedDeadlines(t *testing.T) {
	for what, due := range map[string]int64{"one that has come": 1, "the latest": maxDue} {
		for _, by := range []time.Duration{-time.Hour, time.Hour} {
			var st State
			st.messages = map[core.Seq]entry{
				1: {kind: kindWaiting, attempts: 1, due: due}, 2: {kind: kindLocked, attempts: 1, due: due},
				3: {kind: kindTransferring, to: RetryQueue, attempts: 1, due: due},
			}
			st.Shift(by)
			s := NewGroup(core.GroupSpec{}.WithDefaults()).AddShare(extent(1), st, start)
			given := s.State(start)
			for _, blob := range [][]byte{st.Append(nil), given.Append(nil), save(s, start)} {
				if again, err := DecodeState(blob); err != nil || len(again.messages) != 3 {
					t.Errorf("%s, shifted by %s: %d messages, %v", what, by, len(again.messages), err)
				}
			}
		}
	}
}
