package dispatch

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
)

func decode(t *testing.T, blob []byte) State {
	t.Helper()
	st, err := DecodeState(blob)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// entries of a state, without what is not written.
func (st State) plain() map[core.Seq]entry {
	out := map[core.Seq]entry{}
	for seq, e := range st.messages {
		e.first, e.count = 0, 0
		out[seq] = e
	}
	return out
}

func TestCheckpoint_Content(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: 10 * time.Second}, 9)
	take(g, 8, start)
	s.Ack(1, 1, 1, start, nil)
	s.Ack(4, 1, 1, start, nil)
	s.Nack(2, 1, 5*time.Second, []byte("later"), 0, start)
	s.Nack(3, 1, 0, nil, 0, start)
	s.Reject(5, 1, nil, start)
	s.Return(1, 6, 1, 1, start, nil)
	now := start.Add(time.Second)
	blob, _ := s.Checkpoint([]byte("before"), false, now)
	st := decode(t, blob[len("before"):])
	ms := func(d time.Duration) int64 { return start.Add(d).UnixMilli() }
	exp := map[core.Seq]entry{
		2: {kind: kindWaiting, attempts: 1, due: ms(5 * time.Second), failure: Nacked, text: "later"},
		3: {kind: kindLocked, attempts: 2, due: ms(11 * time.Second), failure: Nacked},
		5: {kind: kindTransferring, attempts: 1, failure: Rejected},
		7: {kind: kindLocked, attempts: 1, due: ms(10 * time.Second)},
		8: {kind: kindLocked, attempts: 1, due: ms(10 * time.Second)},
	}
	if diff := cmp.Diff(exp, st.plain(), cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if st.Frontier() != 1 || !st.done.Done(4) || st.Pending() != 5 { // 6 was returned unseen
		t.Errorf("frontier %d, 4 done %v, pending %d", st.Frontier(), st.done.Done(4), st.Pending())
	}
	final, _ := s.Checkpoint(nil, true, now)
	exp[3] = entry{kind: kindWaiting, attempts: 1, failure: Nacked}
	exp[5] = entry{kind: kindTransferring, held: true, attempts: 1, failure: Rejected}
	for _, seq := range []core.Seq{7, 8} {
		exp[seq] = entry{kind: kindLocked, held: true, attempts: 1, due: ms(10 * time.Second)}
	}
	if diff := cmp.Diff(exp, decode(t, final).plain(), cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("final (-want +got):\n%s", diff)
	}
}

// A new owner honours what is left of locks and delays, counts on from the attempts, and skips what is done.
func TestRestore_HonoursLocks(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: 10 * time.Second}, 5)
	take(g, 4, start)
	s.Ack(2, 1, 1, start, nil)
	s.Nack(3, 1, 20*time.Second, nil, 0, start)
	st := decode(t, save(s, start))

	now := start.Add(4 * time.Second)
	g = NewGroup(g.spec)
	s = g.AddShare(extent(1), st, now)
	offer(t, s, 6)
	g.Tick(now)
	want(t, "only what nobody had", take(g, 9, now), "5+2@1")
	now = start.Add(10 * time.Second)
	g.Tick(now)
	save(s, now)
	want(t, "locks of the owner before", take(g, 9, now), "1+1@2", "4+1@2")
	now = start.Add(20 * time.Second)
	g.Tick(now)
	save(s, now)
	want(t, "delay and own locks", take(g, 3, now), "5+2@2", "1+1@3")
	if bad := s.Ack(1, 1, 1, now, nil); bad != nil {
		t.Errorf("ack of the first owner's delivery: %v", bad)
	}
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

func TestState_Merge(t *testing.T) {
	a := StartAfter(3)
	a.done.Ack(9)
	a.messages = map[core.Seq]entry{
		4: {kind: kindLocked, attempts: 2, due: 50},
		5: {kind: kindWaiting, attempts: 1, due: 90},
		6: {kind: kindTransferring, attempts: 1, failure: Rejected},
		9: {kind: kindLocked, attempts: 1},
	}
	b := StartAfter(1)
	b.done.Ack(5)
	b.messages = map[core.Seq]entry{
		4: {kind: kindWaiting, attempts: 3, due: 20, failure: Nacked, text: "x"},
		6: {kind: kindLocked, attempts: 5, due: 70},
		7: {kind: kindLocked, attempts: 1, due: 30},
	}
	check := func(m State) {
		t.Helper()
		exp := map[core.Seq]entry{
			4: {kind: kindWaiting, attempts: 3, due: 50, failure: Nacked, text: "x"},
			5: {kind: kindWaiting, attempts: 1, due: 90},
			6: {kind: kindTransferring, attempts: 5, failure: Rejected},
			7: {kind: kindLocked, attempts: 1, due: 30},
			9: {kind: kindLocked, attempts: 1},
		}
		if diff := cmp.Diff(exp, m.messages, cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if m.Frontier() != 3 || !m.done.Done(5) || !m.done.Done(9) || m.done.Done(4) {
			t.Errorf("done: frontier %d, %v", m.Frontier(), m.done)
		}
	}
	ab, ba := State{}, State{}
	ab.Merge(a)
	ab.Merge(b)
	ba.Merge(b)
	ba.Merge(a)
	check(ab)
	check(ba)
	s := NewGroup(core.GroupSpec{}.WithDefaults()).AddShare(extent(1), ab, start)
	if s.table.n != 3 || s.ReadFrom() != 4 {
		t.Errorf("restored %d messages, reads from %d, want 3, 4", s.table.n, s.ReadFrom())
	}
}

// TestState_MergeBlocked: a message that was blocked goes on when the group allows more attempts. The lock of a later
// attempt is then what holds, and an older row says nothing of who has it.
func TestState_MergeBlocked(t *testing.T) {
	one := func(e entry) State { return State{messages: map[core.Seq]entry{1: e}} }
	for what, x := range map[string]struct{ old, late, want entry }{
		"a later lock": {
			entry{kind: kindBlocked, attempts: 2, failure: Nacked}, entry{kind: kindLocked, attempts: 3, due: 50, held: true},
			entry{kind: kindLocked, attempts: 3, due: 50, held: true},
		},
		"the same attempt": {
			entry{kind: kindLocked, attempts: 2, due: 50}, entry{kind: kindBlocked, attempts: 2, failure: Nacked},
			entry{kind: kindBlocked, attempts: 2, failure: Nacked},
		},
		"a rejection": { // no attempt follows it, whoever made one
			entry{kind: kindLocked, attempts: 3, due: 50}, entry{kind: kindBlocked, attempts: 2, failure: Rejected},
			entry{kind: kindBlocked, attempts: 3, failure: Rejected},
		},
		"on its way to the retry queue": {
			entry{kind: kindBlocked, attempts: 2, failure: Nacked}, entry{kind: kindTransferring, to: RetryQueue, attempts: 2, due: 50},
			entry{kind: kindTransferring, to: RetryQueue, attempts: 2, due: 50},
		},
		"a lock of before": {
			entry{kind: kindLocked, attempts: 2, due: 40}, entry{kind: kindLocked, attempts: 3, due: 50, held: true},
			entry{kind: kindLocked, attempts: 3, due: 50, held: true},
		},
		"a lock that was not given away": {
			entry{kind: kindLocked, attempts: 3, due: 40}, entry{kind: kindLocked, attempts: 3, due: 50, held: true},
			entry{kind: kindLocked, attempts: 3, due: 50},
		},
	} {
		for _, st := range []State{merged(one(x.old), one(x.late)), merged(one(x.late), one(x.old))} {
			if got := st.messages[1]; got != x.want {
				t.Errorf("%s: got %+v, want %+v", what, got, x.want)
			}
		}
	}
}

// In every state a checkpoint fits; when it is crowded, the share says so, and recovers.
func TestCheckpoint_AlwaysFits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	g, s := newShare(t, core.GroupSpec{}, MaxOutstanding)
	g.Take(1, Credit{Messages: MaxOutstanding, Bytes: 1 << 30}, start, nil)
	for seq := core.Seq(1); seq <= MaxOutstanding; seq++ {
		delay := time.Hour + time.Duration(rnd.IntN(1e7))*time.Millisecond
		if err := s.Nack(seq, 1, delay, []byte(strings.Repeat("é", 700)), 0, start); err != nil {
			t.Fatal(err)
		}
	}
	blob := save(s, start)
	st := decode(t, blob)
	if len(blob) > MaxCheckpoint || !s.Full() || s.WantsMore() {
		t.Fatalf("blob of %d bytes, full %v, wants more %v", len(blob), s.Full(), s.WantsMore())
	}
	for seq := core.Seq(1); seq <= MaxOutstanding; seq++ {
		if st.messages[seq].attempts != 1 {
			t.Fatalf("attempts of seq %d are lost", seq)
		}
	}
	for seq := core.Seq(1); seq <= MaxOutstanding; seq++ {
		s.AckProven(seq, start)
	}
	if save(s, start); s.Full() || !s.WantsMore() {
		t.Fatal("a share that is empty again is still full")
	}
}

func TestDecodeState_Refuses(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 3)
	take(g, 2, start)
	good := save(s, start)
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x10
		if _, err := DecodeState(bad); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("byte %d damaged: got %v", i, err)
		}
		if _, err := DecodeState(good[:i]); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("cut at %d: got %v", i, err)
		}
	}
	newer := seal([]byte{stateVersion + 1, 0, 0})
	if _, err := DecodeState(newer); core.CodeOf(err) != core.CodeNewerFormat {
		t.Errorf("newer: got %v", err)
	}
}

// The last resort: more entries than fit, of which as many as fit are written.
func TestAppendState_CutShort(t *testing.T) {
	var entries []entry
	for i := range 40_000 {
		entries = append(entries, entry{first: core.Seq(2*i + 2), count: 1, kind: kindTransferring, attempts: uint16(i%500 + 1)})
	}
	done := StartAfter(1).done
	if _, _, whole := appendState(nil, &policyStates{}, nil, &done, entries, false); whole {
		t.Fatal("40,000 entries fit")
	}
	blob, _, whole := appendState([]byte("x"), &policyStates{}, nil, &done, entries, true)
	st := decode(t, blob[1:])
	if !whole || len(blob)-1 > MaxCheckpoint || len(blob) < MaxCheckpoint-32 {
		t.Fatalf("got %d bytes, whole %v", len(blob), whole)
	}
	for i := range st.Pending() {
		if e := st.messages[core.Seq(2*i+2)]; e.attempts != entries[i].attempts {
			t.Fatalf("entry %d: got %d attempts, want %d", i, e.attempts, entries[i].attempts)
		}
	}
}

func TestState_Until(t *testing.T) {
	var st State
	st.done.AckRange(1, 10)
	st.done.AckRange(20, 5) // 20 … 24
	st.done.Ack(30)
	st.messages = map[core.Seq]entry{15: {kind: kindLocked, attempts: 1}}
	for seq, want := range map[core.Seq]uint64{0: 0, 4: 4, 10: 10, 19: 10, 20: 11, 22: 13, 24: 15, 29: 15, 30: 16, 99: 16} {
		got := st.Until(seq)
		if got.Consumed() != want || got.Pending() != 0 || got.Frontier() != min(seq, 10) {
			t.Errorf("until %d: %d are done, the frontier is %d; want %d", seq, got.Consumed(), got.Frontier(), want)
		}
	}
}
