package dispatch

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// TestShare_AbsorbSettlesWhatAnotherOwnerDid compares with a set of seqs, whatever was read, handed out or acked
// before.
func TestShare_AbsorbSettlesWhatAnotherOwnerDid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 200
		now := time.Unix(1_000_000, 0)
		g := NewGroup(core.GroupSpec{}.WithDefaults())
		s := g.AddShare(core.ExtentID{ID: core.ID{1}}, State{}, now)
		read := rapid.IntRange(0, n).Draw(t, "read")
		if read > 0 {
			r := Records{Base: 1, Offsets: make([]uint32, read+1), Bytes: make([]byte, read)}
			for i := range r.Offsets {
				r.Offsets[i] = uint32(i)
			}
			if err := s.Offer(r, now); err != nil {
				t.Fatal(err)
			}
		}
		done := make(map[core.Seq]bool)
		if take := rapid.IntRange(0, n).Draw(t, "take"); take > 0 {
			for _, r := range g.Take(1, Credit{Messages: take, Bytes: 1 << 20}, now, nil) {
				for i := range core.Seq(r.Count) {
					if rapid.Bool().Draw(t, "ack") {
						s.Ack(r.Base+i, 1, 1, now, nil)
						done[r.Base+i] = true
					}
				}
			}
		}
		var other State
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			first := rapid.IntRange(1, n).Draw(t, "first")
			count := rapid.IntRange(1, n).Draw(t, "count")
			other.done.AckRange(core.Seq(first), uint64(count))
		}
		before, acked := len(done), g.Counters().Acked
		for seq := core.Seq(1); seq <= 2*n; seq++ {
			if other.done.Done(seq) {
				done[seq] = true
			}
		}
		if got := s.Absorb(other, now); got != uint64(len(done)-before) {
			t.Fatalf("absorbed %d, want %d", got, len(done)-before)
		}
		if got := g.Counters().Acked; got != acked {
			t.Fatalf("%d acks are counted, want %d: the other owner counts its own", got, acked)
		}
		for seq := core.Seq(1); seq <= 2*n; seq++ {
			if s.done.Done(seq) != done[seq] {
				t.Fatalf("seq %d: done %v, want %v", seq, s.done.Done(seq), done[seq])
			}
		}
		if err := g.check(); err != nil {
			t.Fatal(err)
		}
		if s.Absorb(other, now) != 0 {
			t.Fatal("absorbed again")
		}
	})
}

// TestShare_AbsorbIsNoSuccess: what a purge takes neither keeps the breaker closed, nor closes it.
func TestShare_AbsorbIsNoSuccess(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 5}, 100)
	take(g, 60, start)
	purge := func(seq core.Seq) {
		var w acklevel.Window
		w.Ack(seq)
		s.Absorb(StateDone(&w), start)
	}
	for seq := core.Seq(1); seq <= 60; seq++ {
		if err := s.Nack(seq, 1, 0, nil, 0, start); err != nil {
			t.Fatal(err)
		}
		if seq%10 == 0 {
			purge(60 + seq/10)
		}
	}
	if state, _ := g.Breaker(); state == BreakerClosed {
		t.Fatal("all messages fail, and the breaker is closed")
	}
	purge(99)
	if state, _ := g.Breaker(); state == BreakerClosed {
		t.Error("a purge closed the breaker")
	}
}

// TestState_AckTakesWhatWasHandedOut settles at an owner that has given its share away.
func TestState_AckTakesWhatWasHandedOut(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	s := g.AddShare(core.ExtentID{ID: core.ID{1}}, State{}, now)
	if err := s.Offer(Records{Base: 1, Offsets: []uint32{0, 1, 2, 3}, Bytes: make([]byte, 3)}, now); err != nil {
		t.Fatal(err)
	}
	g.Take(1, Credit{Messages: 2, Bytes: 100}, now, nil)
	st := s.State(now)
	for _, c := range []struct {
		seq     core.Seq
		attempt uint16
		want    bool
	}{{1, 2, false}, {1, 1, true}, {1, 1, false}, {2, 0, false}, {3, 1, false}, {2, 1, true}} {
		if got := st.Ack(c.seq, c.attempt, now); got != c.want {
			t.Errorf("ack of %d, attempt %d: %v, want %v", c.seq, c.attempt, got, c.want)
		}
	}
	if st.Frontier() != 2 || st.Pending() != 0 {
		t.Errorf("frontier %d, %d pending; want 2 and none", st.Frontier(), st.Pending())
	}
	decoded, err := DecodeState(st.Append(nil))
	if err != nil || decoded.Frontier() != 2 {
		t.Errorf("saved as frontier %d, %v", decoded.Frontier(), err)
	}
}

// TestState_AckOfWhatTheNextOwnerHas: once a lock or a delay has ended the owner that follows may have made a dead
// letter of the message. An ack that the owner before it takes then would be told to have worked, too.
func TestState_AckOfWhatTheNextOwnerHas(t *testing.T) {
	spec := core.GroupSpec{LockTimeout: 10 * time.Second, MaxDeliveries: 1}
	g, s := newShare(t, spec, 3)
	take(g, 3, start)
	if err := s.Extend(2, 1, 30*time.Second, start); err != nil {
		t.Fatal(err)
	}
	st := s.State(start)
	lockEnds := start.Add(10 * time.Second)
	now := lockEnds.Add(5 * time.Second) // an exhausted message waits so long for the breaker
	next := NewGroup(g.spec)
	then := next.AddShare(extent(1), st, start)
	offer(t, then, 3)
	next.Tick(lockEnds)
	next.Tick(now)
	save(then, now)
	if dead := next.TakeTransfers(DeadLetterQueue, 9, nil); len(dead) != 2 {
		t.Fatalf("%d dead letters at the next owner, want 2", len(dead))
	}
	if st.Ack(1, 1, now) || !st.Ack(2, 1, now) || !st.Ack(3, 1, lockEnds.Add(-time.Second)) {
		t.Error("acks are to be taken as long as the lock lasts")
	}
}

// TestState_AckOfWhatTheNextOwnerMoves: the next owner appends a message that waits for long to the retry queue at
// once, and hears of an ack at the owner before it too late.
func TestState_AckOfWhatTheNextOwnerMoves(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	if err := s.Nack(1, 1, time.Hour, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	st := s.State(start)
	next, then := resume(t, core.GroupSpec{}, st.Append(nil), 1, start)
	save(then, start)
	if some := next.TakeTransfers(RetryQueue, 9, nil); len(some) != 1 {
		t.Fatalf("%d messages leave at the next owner, want 1", len(some))
	}
	then.Transferred(1, start)
	if st.Ack(1, 1, start) {
		t.Error("an ack worked, and the message comes again from the retry queue")
	}
}

// TestState_AppendKeepsAttemptsOfAll: what consumers said must not push out how often the other messages were handed
// out.
func TestState_AppendKeepsAttemptsOfAll(t *testing.T) {
	const n = 2000
	st := State{messages: make(map[core.Seq]entry)}
	for seq := core.Seq(1); seq <= n; seq++ {
		st.messages[seq] = entry{kind: kindWaiting, failure: Nacked, attempts: 3, due: int64(seq), text: strings.Repeat("x", MaxReason-8) + strconv.Itoa(int(seq))}
	}
	blob := st.Append(nil)
	if len(blob) > MaxCheckpoint {
		t.Fatalf("%d bytes", len(blob))
	}
	got, err := DecodeState(blob)
	if err != nil {
		t.Fatal(err)
	}
	for seq := core.Seq(1); seq <= n; seq++ {
		if got.messages[seq].attempts != 3 {
			t.Fatalf("message %d of %d was handed out %d times, the checkpoint says, want 3", seq, n, got.messages[seq].attempts)
		}
	}
}

// TestState_OfWhatDidNotLeave gives a share away whose message waits for its append: the next owner appends it without
// looking for it, unless the append had begun.
func TestState_OfWhatDidNotLeave(t *testing.T) {
	for _, began := range []bool{false, true} {
		g, s := newShare(t, core.GroupSpec{}, 1)
		take(g, 1, start)
		if err := s.Nack(1, 1, time.Hour, nil, 0, start); err != nil {
			t.Fatal(err)
		}
		save(s, start)
		if began {
			g.TakeTransfers(RetryQueue, 9, nil)
		}
		st := s.State(start)
		g, s = resume(t, core.GroupSpec{}, st.Append(nil), 1, start)
		save(s, start)
		if some := g.TakeTransfers(RetryQueue, 9, nil); len(some) != 1 || some[0].Again != began || began && !some[0].Certain.Equal(start.Add(TransferDoubt)) {
			t.Errorf("began %v: %+v leave", began, some)
		}
	}
}

// TestCheckpoint_FinalOfWhatDidNotLeave: the next owner of a share appends at once what the last checkpoint of the
// owner before says is there only, in whatever step of its transfer. It looks for a message whose append had begun.
func TestCheckpoint_FinalOfWhatDidNotLeave(t *testing.T) {
	steps := []struct {
		name string
		to   func(g *Group, s *Share, to Destination)
		sure bool
	}{
		{"leaving", func(*Group, *Share, Destination) {}, true},
		{"announced", func(_ *Group, s *Share, _ Destination) { s.Checkpoint(nil, false, start) }, true},
		{"transferring", func(_ *Group, s *Share, _ Destination) { save(s, start) }, true},
		{"appending", func(g *Group, s *Share, to Destination) {
			save(s, start)
			g.TakeTransfers(to, 9, nil)
		}, false},
		{"refused", func(g *Group, s *Share, to Destination) {
			save(s, start)
			g.TakeTransfers(to, 9, nil)
			s.TransferFailed(1, false, start.Add(time.Second), start)
		}, true},
		{"unknown", func(g *Group, s *Share, to Destination) {
			save(s, start)
			g.TakeTransfers(to, 9, nil)
			s.TransferFailed(1, true, start.Add(time.Second), start)
		}, false},
	}
	for _, step := range steps {
		for to, fail := range map[Destination]func(*Share) error{
			DeadLetterQueue: func(s *Share) error { return s.Reject(1, 1, nil, start) },
			RetryQueue:      func(s *Share) error { return s.Nack(1, 1, time.Hour, nil, 0, start) },
		} {
			g, s := newShare(t, core.GroupSpec{}, 1)
			take(g, 1, start)
			if err := fail(s); err != nil {
				t.Fatal(err)
			}
			step.to(g, s, to)
			if step.sure && !s.LeavesUnsure() {
				t.Errorf("%s, to the %s: nothing is left unsure without a final checkpoint", step.name, to)
			}
			blob, _ := s.Checkpoint(nil, true, start)
			if s.LeavesUnsure() {
				t.Errorf("%s, to the %s: something is left unsure by the final checkpoint", step.name, to)
			}
			g, s = resume(t, core.GroupSpec{}, blob, 1, start)
			save(s, start)
			some := g.TakeTransfers(to, 9, nil)
			if !step.sure {
				g.Tick(start.Add(TransferDoubt))
				some = append(some, g.TakeTransfers(to, 9, nil)...)
			}
			if len(some) != 1 || some[0].Again == step.sure {
				t.Errorf("%s, to the %s: %+v leave, want one, and it is looked for: %v", step.name, to, some, !step.sure)
			}
		}
	}
}

// TestCheckpoint_LetterThatStaysHasADeadline: an owner takes over a dead letter that did not leave, while nothing
// fails. Then a message of another share fails, and the next checkpoint does not say that the letter leaves. It leaves
// when it has stayed for long enough, whatever happens.
func TestCheckpoint_LetterThatStaysHasADeadline(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 1}, 1)
	take(g, 1, start)
	if err := s.Nack(1, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	blob, _ := s.Checkpoint(nil, true, start)
	g, s = resume(t, core.GroupSpec{MaxDeliveries: 2}, blob, 1, start)
	other := g.AddShare(extent(2), State{}, start)
	offer(t, other, 1)
	g.takeChanged()
	take(g, 1, start)
	if err := other.Nack(1, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	save(s, start)
	want := func(n int) {
		t.Helper()
		if got := len(g.TakeTransfers(DeadLetterQueue, 9, nil)); got != n {
			t.Fatalf("%d letters leave, want %d", got, n)
		}
	}
	want(0)
	at, ok := g.NextDeadline()
	if late := at.Sub(start); !ok || late > routes[DeadLetterQueue].patience {
		t.Fatalf("the next deadline is %s later (%v)", late, ok)
	}
	g.Tick(at)
	if s.Leaving() != 1 || !slices.Contains(g.takeChanged(), s) {
		t.Error("the share is not listed when the letter may leave")
	}
	save(s, at)
	want(1)
}

// TestState_OfDeadLettersThatDidNotLeave: a dead letter that was not appended is appended by the next owner at once,
// however often the share moves. One that a later owner may have appended is looked for, whatever an earlier one said.
func TestState_OfDeadLettersThatDidNotLeave(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	if err := s.Reject(1, 1, nil, start); err != nil {
		t.Fatal(err)
	}
	given := s.State(start)
	for range 3 {
		g, s = resume(t, core.GroupSpec{}, given.Append(nil), 1, start)
		given = s.State(start)
	}
	own := save(s, start)
	if some := g.TakeTransfers(DeadLetterQueue, 9, nil); len(some) != 1 || some[0].Again {
		t.Fatalf("%+v leave, want one that is here only", some)
	}
	for _, first := range []State{given, decode(t, own)} { // rows come in any order
		second := decode(t, own)
		if first.messages[1] == second.messages[1] {
			second = given
		}
		first.Merge(second)
		g, s = resume(t, core.GroupSpec{}, first.Append(nil), 1, start)
		save(s, start)
		if some := g.TakeTransfers(DeadLetterQueue, 9, nil); len(some) != 0 {
			t.Errorf("%+v leave at once, but the owner before may have appended it", some)
		}
		g.Tick(start.Add(TransferDoubt))
		if some := g.TakeTransfers(DeadLetterQueue, 9, nil); len(some) != 1 || !some[0].Again {
			t.Errorf("%+v leave after the doubt, want one that may be there", some)
		}
	}
}

// TestState_ShiftLeavesWhatMayBeThere: a message that an earlier owner may have appended is looked for by the due time
// of that append, however wrong the clock of that owner was.
func TestState_ShiftLeavesWhatMayBeThere(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	if err := s.Nack(1, 1, time.Hour, nil, 0, start.Add(time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	blob := save(s, start)
	first := g.TakeTransfers(RetryQueue, 9, nil)
	st := decode(t, blob)
	st.Shift(-time.Minute)
	g, _ = resume(t, core.GroupSpec{}, st.Append(nil), 1, start)
	again := g.TakeTransfers(RetryQueue, 9, nil)
	if len(first) != 1 || len(again) != 1 || !again[0].Due.Equal(first[0].Due) {
		t.Errorf("appended as %+v, looked for as %+v", first, again)
	}
}
