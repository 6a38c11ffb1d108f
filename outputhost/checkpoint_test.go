package outputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// TestSaver_BusyGroupsAreSavedSoonerButNotTooOften asks what is due as time passes.
func TestSaver_BusyGroupsAreSavedSoonerButNotTooOften(t *testing.T) {
	b := newHarness(t)
	now := time.Unix(1000, 0)
	quiet, busy, retry := &group{h: b.Host}, &group{h: b.Host}, &group{h: b.Host}
	busy.savedAt.Store(now.UnixNano())
	b.saver.note(quiet, saveRound)
	b.saver.note(busy, saveRound)
	b.saver.note(busy, saveEarly)
	b.saver.note(busy, saveRound)
	b.saver.note(retry, saveNow)
	due, next := b.saver.due(&pass{now: now.Add(40 * time.Millisecond), early: 1})
	if len(due) != 1 || due[0] != retry || next != 60*time.Millisecond {
		t.Errorf("after 40 ms %d are due, the next in %s; want the one with retries, and the busy one in 60 ms", len(due), next)
	}
	due, next = b.saver.due(&pass{now: now.Add(100 * time.Millisecond), wait: 30 * time.Millisecond})
	if len(due) != 0 || next != 30*time.Millisecond {
		t.Errorf("after 100 ms and without a budget %d are due, the next in %s; want none, and the busy one when the budget may have more", len(due), next)
	}
	due, next = b.saver.due(&pass{now: now.Add(100 * time.Millisecond), early: 1})
	if len(due) != 1 || due[0] != busy || next != time.Hour {
		t.Errorf("after 100 ms %d are due, the next in %s; want the busy one", len(due), next)
	}
	if due, _ = b.saver.due(&pass{now: now.Add(time.Second), round: true}); len(due) != 1 || due[0] != quiet {
		t.Errorf("at the end of the second %d are due, want the quiet one", len(due))
	}
}

// given gives the host one share.
func (b *harness) given() (*group, *share) {
	b.t.Helper()
	_, a := b.group()
	if err := b.give(1, a); err != nil {
		b.t.Fatal(err)
	}
	g := b.groupList()[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.mu.shares {
		return g, s
	}
	panic("no share")
}

// share is given, with n records read, the first taken of them handed out.
func (b *harness) share(n, taken int) (*group, *share) {
	b.t.Helper()
	g, s := b.given()
	g.mu.Lock()
	defer g.mu.Unlock()
	r := dispatch.Records{Base: 1, Offsets: make([]uint32, n+1), Bytes: make([]byte, n)}
	for i := range r.Offsets {
		r.Offsets[i] = uint32(i)
	}
	if err := s.rules.Offer(r, b.deps.Now()); err != nil {
		b.t.Fatal(err)
	}
	g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
	g.mu.rules.Take(1, dispatch.Credit{Messages: taken, Bytes: 1 << 20}, b.deps.Now(), nil)
	return g, s
}

// TestShare_LateAcksReachTheNewOwner moves a share from one host to another while messages are in flight, and acks them
// at the old one.
func TestShare_LateAcksReachTheNewOwner(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 6)
	c := &consumer{h: b.Host, handles: map[*share]uint32{s: 0}, shares: []*share{s}}
	s.rules.Ack(1, 2, 1, b.deps.Now(), nil)
	g.giveAway(s, b.deps.Now())
	b.saver.save(t.Context(), false)
	from, err := b.savedState(t.Context(), metadata.CheckpointKey(g.id, s.extent.ID, 0, b.deps.Members.Self().Run), g.counts(s.extent, 0), ownerReads, 0)
	state := from.state
	if err != nil || state.Frontier() != 2 || len(from.others) != 0 {
		t.Fatalf("saved: frontier %d, %d others, %v", state.Frontier(), len(from.others), err)
	}

	// another owner begins from there
	next := &share{group: g, extent: s.extent, others: map[metadata.Key]*other{{Partition: "x", Row: "y"}: {}}}
	next.rules = dispatch.NewGroup(g.mu.record.Spec).AddShare(s.extent.ID, state, b.deps.Now())

	g.mu.Lock()
	late := c.lateLocked(0)
	bad := late.ackLateLocked(2, 3, 1, b.deps.Now(), nil)
	bad = late.ackLateLocked(9, 1, 1, b.deps.Now(), bad)
	if bad := late.ackLateLocked(5, 1, 1, b.deps.Now().Add(g.mu.record.Spec.LockTimeout-mergeEvery), nil); len(bad) != 1 || bad[0].Code != core.CodeMoved {
		t.Errorf("refused %v, want 5, whose lock ends before the new owner would hear of it", bad)
	}
	g.mu.Unlock()
	if len(bad) != 2 || bad[0].Base != 2 || bad[1].Base != 9 || bad[0].Code != core.CodeMoved {
		t.Errorf("refused %v, want 2, which was settled, and 9, which was not handed out", bad)
	}
	b.saver.note(g, saveNow)
	b.saver.save(t.Context(), false)

	rows, err := b.checkpoints(t.Context(), metadata.CheckpointPartition(g.id, s.extent.ID), metadata.One)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	decoded, err := dispatch.DecodeState(rows[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	if n := next.rules.Absorb(decoded, b.deps.Now()); n != 2 || next.rules.Frontier() != 4 {
		t.Errorf("the new owner took over %d acks, its frontier is %d; want 2 and 4", n, next.rules.Frontier())
	}
}

// TestShare_ComesBackWithWhatAnotherOwnerSettled gives a share away and back, unnoticed, by its generation alone.
func TestShare_ComesBackWithWhatAnotherOwnerSettled(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	var e core.ExtentID
	for id := range g.mu.shares {
		e = id
	}
	old := g.mu.shares[e]
	state := dispatch.StartAfter(7)
	key := metadata.CheckpointKey(r.ID, e, 0, core.RunID{ID: core.ID{9}})
	if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, state.Append(nil), b.deps.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	a.Counter += 2
	if err := b.give(2, a); err != nil {
		t.Fatal(err)
	}
	s := g.mu.shares[e]
	if s == old || s.rules.Frontier() != 7 || len(g.mu.given) != 0 {
		t.Fatalf("the same share %v, frontier %d, %d given away", s == old, s.rules.Frontier(), len(g.mu.given))
	}

	// that owner is dead: its row goes once ours is durable, not before
	g.mu.merged = 0
	if err := g.mergeOthers(t.Context()); err != nil || len(s.others) != 1 {
		t.Fatalf("before ours is saved: %d others, %v", len(s.others), err)
	}
	s.rules.AckProven(8, b.deps.Now())
	b.saver.note(g, saveNow)
	b.saver.save(t.Context(), false)
	for range 4 { // the first one asks for ours at Quorum, the last two find that the other is gone
		g.mu.merged = 0
		if err := g.mergeOthers(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.saveAll()
	}
	if len(s.others) != 0 {
		t.Errorf("after: %d others", len(s.others))
	}
	got, err := b.savedState(t.Context(), metadata.CheckpointKey(r.ID, e, 0, b.deps.Members.Self().Run), func(metadata.Key) bool { return true }, ownerReads, 0)
	if err != nil || got.state.Frontier() != 8 {
		t.Errorf("saved frontier %d, %v; want 8", got.state.Frontier(), err)
	}
}

// TestShare_HandlesOfConsumersThatLeft: a consumer has closed and settles what it holds. Its handles go on to mean what
// those of others do.
func TestShare_HandlesOfConsumersThatLeft(t *testing.T) {
	b := newHarness(t)
	_, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	extent := func() core.ExtentID { // there is one
		for id := range g.mu.shares {
			return id
		}
		return core.ExtentID{}
	}
	s := g.mu.shares[extent()]
	e := s.extent.ID
	left := &consumer{h: b.Host, handles: map[*share]uint32{s: 0}, shares: []*share{s}} // no consumer of the group any more
	a.Counter += 2
	if err := b.give(2, a); err != nil {
		t.Fatal(err)
	}
	back := g.mu.shares[e]
	g.mu.Lock()
	if got := left.shareLocked(0); back == s || got != back {
		t.Errorf("the share came back, and the handle means %p, not %p", got, back)
	}
	g.mu.Unlock()

	g.giveAway(back, b.deps.Now())
	b.saver.save(t.Context(), false)
	g.mu.Lock()
	if late := left.lateLocked(0); late != back {
		t.Errorf("the share was given away, and late acks go to %p, not to %p", late, back)
	}
	g.forgetGivenLocked(b.deps.Now().Add(2 * lateFor))
	if err := left.lackLocked(0); core.CodeOf(err) != core.CodeMoved {
		t.Errorf("the share was given away long ago: %v", err)
	}
	g.mu.Unlock()
}

// BenchmarkCheckpoint is one checkpoint of a busy group's share with 2,000 messages in flight: up to ten of these a
// second.
func BenchmarkCheckpoint(b *testing.B) {
	harness := newHarness(b)
	g, s := harness.share(10_000, 2_000)
	seq := core.Seq(1)
	b.ReportAllocs()
	for b.Loop() {
		s.rules.Ack(seq%2000+1, 1, 1, harness.deps.Now(), nil)
		seq += 7
		harness.saver.note(g, saveNow)
		harness.saver.save(b.Context(), false)
	}
}

// TestSaver_StampsNeverGoBack sets the clock back: what is written after that must not lose against what was written
// before.
func TestSaver_StampsNeverGoBack(t *testing.T) {
	b := newHarness(t)
	ahead := time.Now().Add(time.Hour)
	first := b.saver.stamp(ahead)
	second := b.saver.stamp(ahead.Add(-10 * time.Minute))
	if !first.Equal(ahead) || !second.After(first) {
		t.Errorf("stamps %s and %s of a clock at %s that was set back; want the second after the first", first, second, ahead)
	}
	if next := b.saver.stamp(ahead.Add(time.Minute)); !next.Equal(ahead.Add(time.Minute)) {
		t.Errorf("stamp %s, want the clock's once it has caught up", next)
	}
}

// TestShare_LocksOfAClockThatWasAhead resumes a share whose owner's clock was a month ahead: its locks end when they
// would have.
func TestShare_LocksOfAClockThatWasAhead(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(2, 0)
	ahead := time.Now().Add(30 * 24 * time.Hour)
	g.mu.Lock()
	g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
	g.mu.rules.Take(1, dispatch.Credit{Messages: 2, Bytes: 1 << 20}, ahead, nil)
	blob, _ := s.rules.Checkpoint(nil, false, ahead)
	lock := g.mu.record.Spec.LockTimeout
	g.mu.Unlock()
	other := metadata.CheckpointKey(g.id, s.extent.ID, 0, core.RunID{ID: core.NewID(time.Now())})
	if err := b.meta.PutAll(t.Context(), metadata.Checkpoints, []metadata.Row{{Key: other, Value: blob, Written: ahead}}, metadata.One); err != nil {
		t.Fatal(err)
	}
	from, err := b.savedState(t.Context(), metadata.CheckpointKey(g.id, s.extent.ID, 0, b.deps.Members.Self().Run), g.counts(s.extent, 0), ownerReads, 0)
	state := from.state
	if err != nil || state.Pending() != 2 {
		t.Fatalf("%d messages under way, %v; want 2", state.Pending(), err)
	}
	rules := dispatch.NewGroup(g.mu.record.Spec)
	sh := rules.AddShare(s.extent.ID, state, time.Now())
	if err := sh.Offer(dispatch.Records{Base: 1, Offsets: []uint32{0, 1, 2}, Bytes: make([]byte, 2)}, time.Now()); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(lock + 2*clockTolerance)
	rules.Tick(later)
	_, token := sh.Checkpoint(nil, false, later)
	sh.Saved(token)
	rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
	if got := rules.Take(1, dispatch.Credit{Messages: 2, Bytes: 1 << 20}, later, nil); len(got) == 0 {
		t.Error("nothing comes again after the lock's time")
	}
}
