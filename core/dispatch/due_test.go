package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"pgregory.net/rapid"
)

// timerTimes are what a record of a timer extent says, whenever it is read.
type timerTimes struct {
	enqueued, due time.Time
	expire        time.Time // zero: never
}

func (x timerTimes) since() time.Time {
	if x.due.After(x.enqueued) {
		return x.due
	}
	return x.enqueued
}

// dueRecords are the messages of some seqs, due at the epoch unless times say otherwise.
func dueRecords(times map[core.Seq]timerTimes, buffer *counted, seqs ...core.Seq) DueRecords {
	r := DueRecords{Seqs: seqs, Offsets: []uint32{0}, Expire: make([]int64, len(seqs))}
	for i, seq := range seqs {
		r.Bytes = append(r.Bytes, payload(seq)...)
		r.Offsets = append(r.Offsets, uint32(len(r.Bytes)))
		x, known := times[seq]
		if !known {
			x = timerTimes{enqueued: time.UnixMicro(int64(seq) * 10)}
		}
		r.Enqueued = append(r.Enqueued, x.enqueued.UnixMicro())
		r.DeliverAt = append(r.DeliverAt, max(x.due.UnixMilli(), 0))
		if !x.expire.IsZero() {
			r.Expire[i] = x.expire.UnixMilli()
		}
	}
	if buffer != nil {
		r.Buffer, buffer.bytes = buffer, r.Bytes
	}
	return r
}

// offerDue offers seqs in any order, some twice, some that were offered before.
func (m *machine) offerDue(t *rapid.T) {
	var seqs []core.Seq
	for range rapid.IntRange(1, 40).Draw(t, "records") {
		seq := core.Seq(rapid.IntRange(1, 150).Draw(t, "seq"))
		if _, known := m.timers[seq]; !known {
			x := timerTimes{enqueued: m.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * time.Second).Truncate(time.Millisecond)}
			if rapid.Bool().Draw(t, "timed") {
				x.due = m.now.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "late")) * time.Second).Truncate(time.Millisecond)
			}
			if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
				x.expire = m.now.Add(time.Duration(rapid.IntRange(-5, 20).Draw(t, "left")) * time.Second).Truncate(time.Millisecond)
			}
			m.timers[seq] = x
		}
		seqs = append(seqs, seq)
		m.written = max(m.written, seq)
	}
	m.give(t, seqs)
}

func (m *machine) give(t *rapid.T, seqs []core.Seq) {
	b := &counted{}
	m.buffers = append(m.buffers, b)
	for _, seq := range seqs {
		m.fate(seq).appended, m.fate(seq).expire = m.timers[seq].since(), m.timers[seq].expire
	}
	if err := m.s.OfferDue(dueRecords(m.timers, b, seqs...), m.now); err != nil {
		t.Fatalf("offer: %v", err)
	}
	if err := m.s.Offer(records(m.s.ReadFrom(), 1, nil), m.now); core.CodeOf(err) != core.CodeBadArgument {
		t.Fatalf("a batch of a log: %v", err)
	}
}

// offerAllDue offers what there is; what nobody has put there is put there now.
func (m *machine) offerAllDue(t *rapid.T) {
	var seqs []core.Seq
	for seq := m.written; seq >= 1; seq-- {
		if _, known := m.timers[seq]; !known {
			m.timers[seq] = timerTimes{enqueued: m.now}
		}
		seqs = append(seqs, seq)
	}
	if len(seqs) > 0 {
		m.give(t, seqs)
	}
}

// checkKnown compares what a reader would be told to leave out with what is done or held.
func (m *machine) checkKnown(t *rapid.T) {
	known, missing := m.s.Known(), uint64(0)
	for seq := core.Seq(1); seq <= m.written; seq++ {
		held := false
		if x := m.s.table.get(seq); x != nil {
			held = x.batch != nil
		} else {
			held = m.s.supplies(seq)
		}
		if got, want := known.Done(seq), held || m.s.done.Done(seq); got != want {
			t.Fatalf("seq %d is known: %v, want %v", seq, got, want)
		} else if !want {
			missing++
		}
	}
	if got := m.s.Unread(m.written); got != missing {
		t.Fatalf("%d are unread, want %d", got, missing)
	}
	if got := m.s.Uncounted(m.written); got != missing-uint64(m.s.missing) {
		t.Fatalf("%d are not counted, want %d less the %d that were restored", got, missing, m.s.missing)
	}
}

func newTimers(t *testing.T, spec core.GroupSpec) (*Group, *Share) {
	t.Helper()
	g := NewGroup(spec.WithDefaults())
	return g, g.AddTimers(extent(1), State{}, start)
}

func offerTimers(t *testing.T, s *Share, now time.Time, seqs ...core.Seq) *counted {
	t.Helper()
	b := &counted{}
	if err := s.OfferDue(dueRecords(nil, b, seqs...), now); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTimers_InTheOrderOfTheirOffers(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{})
	a := offerTimers(t, s, start, 70_000, 5, 6, 3)
	b := offerTimers(t, s, start, 3, 1, 70_000)
	if d := g.Depth(); d.Ready != 5 || d.OldestReady != 700_000 {
		t.Fatalf("depth %+v, want 5 ready, the oldest that which is due first", d)
	}
	if s.Unread(70_000) != 69_995 || s.ReadFrom() != 1 || s.Done(1) {
		t.Errorf("%d are unread, read from %d", s.Unread(70_000), s.ReadFrom())
	}
	want(t, "as they were offered", take(g, 9, start), "70000+1@1", "5+1@1", "6+1@1", "3+1@1", "1+1@1")
	for _, seq := range []core.Seq{1, 3, 5, 6, 70_000} {
		if bad := s.Ack(seq, 1, 1, start, nil); bad != nil {
			t.Fatalf("ack of %d is refused: %v", seq, bad)
		}
	}
	if a.released != 1 || b.released != 1 || s.Frontier() != 1 || s.Held() != 0 {
		t.Errorf("released %d and %d times, frontier %d, %d bytes held", a.released, b.released, s.Frontier(), s.Held())
	}
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

// A message for later is visible when its time has come and the group's delay is over, whichever comes last; what is
// handed out again does not wait.
func TestTimers_GroupDelay(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{Delay: 10 * time.Second})
	times := map[core.Seq]timerTimes{
		1: {enqueued: second(-9), due: second(-1)},
		2: {enqueued: second(-4), due: second(-2)},
		3: {enqueued: second(-20), due: second(-3)},
		4: {enqueued: second(-8), due: second(0)},
	}
	if err := s.OfferDue(dueRecords(times, nil, 3, 2, 1, 4), start); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if err := g.check(); err != nil {
			t.Fatal(err)
		}
	}
	if d := g.Depth(); d.Ready != 1 || d.Delayed != 3 {
		t.Fatalf("got %+v, want 1 ready, 3 delayed", d)
	}
	if b := s.Blocking(); b.Seq != 1 || b.Place != PlaceDelayed || !b.Until.Equal(second(1)) {
		t.Errorf("blocked by %+v, want the first, delayed until 1 s", b)
	}
	want(t, "what is old enough", take(g, 9, start), "3+1@1")
	check()
	deadline(t, g, second(1))
	want(t, "the next", take(g, 9, second(1)), "1+1@1")
	g.Update(core.GroupSpec{Delay: time.Minute}.WithDefaults(), second(1))
	check()
	if err := s.Nack(1, 1, 0, nil, 0, second(1)); err != nil {
		t.Fatal(err)
	}
	save(s, second(1))
	want(t, "what was handed out does not wait again", take(g, 9, second(3)), "1+1@2")
	g.Update(core.GroupSpec{Delay: 12 * time.Second}.WithDefaults(), second(3))
	check()
	if held := s.Withhold(4, second(3)); held != Held {
		t.Fatalf("what is kept back is %s", held)
	}
	check()
	s.Follow(new(acklevel.Window), nil, nil, s.Withholds(), second(3))
	check()
	want(t, "released, and kept back still", take(g, 9, second(3)))
	deadline(t, g, second(4))
	want(t, "by the new delay", take(g, 9, second(4)), "4+1@1")
	g.Rebuild(s, second(5))
	if err := s.OfferDue(dueRecords(times, nil, 3, 2, 1, 4), second(5)); err != nil {
		t.Fatal(err)
	}
	check()
	g.Update(core.GroupSpec{}.WithDefaults(), second(5))
	check()
	want(t, "the delay was taken away", take(g, 9, second(5)), "2+1@1")
}

// Records of one batch of their publisher that are due in its order travel as one run.
func TestTimers_RunsAreJoined(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{})
	r := dueRecords(nil, nil, 4, 5, 6, 8, 7, 1, 2)
	r.Enqueued = []int64{9, 9, 9, 9, 9, 9, 8}
	if err := s.OfferDue(r, start); err != nil {
		t.Fatal(err)
	}
	want(t, "runs", take(g, 9, start), "4+3@1", "8+1@1", "7+1@1", "1+1@1", "2+1@1")
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

func TestTimers_SkipOlderCountsFromDue(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{SkipOlder: 10 * time.Second})
	times := map[core.Seq]timerTimes{
		1: {enqueued: second(-3600), due: second(-11)},
		2: {enqueued: second(-3600), due: second(-10)},
		3: {enqueued: second(-1), due: second(-11)},
		4: {enqueued: second(-3600), due: second(-1)},
	}
	if err := s.OfferDue(dueRecords(times, nil, 1, 3, 2, 4), start); err != nil {
		t.Fatal(err)
	}
	if c := g.Counters(); c.Skipped != 1 || !s.Done(1) || !s.Changed() {
		t.Fatalf("got %+v, frontier %d; want the first skipped", c, s.Frontier())
	}
	want(t, "before they are too old", take(g, 1, start), "3+1@1")
	if bad := s.Return(1, 3, 1, 1, start, nil); bad != nil {
		t.Fatal(bad)
	}
	want(t, "what was handed out bypasses the rule; one is too old by now", take(g, 9, second(5)), "3+1@1", "4+1@1")
	if c := g.Counters(); c.Skipped != 2 || s.Frontier() != 2 {
		t.Errorf("got %+v, frontier %d; want 2 skipped", c, s.Frontier())
	}
}

// A new owner has the locks and attempts of the one before, and asks for nothing that is done.
func TestTimers_ResumeFromACheckpoint(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{LockTimeout: 10 * time.Second})
	offerTimers(t, s, start, 9, 2, 7, 4)
	want(t, "first", take(g, 3, start), "9+1@1", "2+1@1", "7+1@1")
	s.Ack(2, 1, 1, start, nil)
	if err := s.Nack(7, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	st := decode(t, save(s, start))
	g = NewGroup(g.spec)
	s = g.AddTimers(extent(1), st, start)
	for seq, done := range map[core.Seq]bool{2: true, 4: false, 7: false, 9: false} {
		if known := s.Known().Done(seq); known != done {
			t.Errorf("seq %d is known: %v", seq, known)
		}
	}
	offerTimers(t, s, start, 9, 2, 7, 4)
	if s.Unread(9) != 5 || !s.Known().Done(9) {
		t.Errorf("%d are unread, want 5", s.Unread(9))
	}
	want(t, "what nobody had", take(g, 9, start), "4+1@1")
	g.Tick(second(10))
	save(s, second(10))
	want(t, "when the locks are over", take(g, 9, second(10)), "4+1@2", "7+1@3", "9+1@2")
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

func TestTimers_Limits(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{})
	for base := core.Seq(1); s.WantsMore(); base += 500 {
		var seqs []core.Seq
		for seq := range core.Seq(500) {
			seqs = append(seqs, 2*(base+seq))
		}
		offerTimers(t, s, start, seqs...)
	}
	if n := s.outstanding(); n != MaxOutstanding || s.ReadCredit() != 0 {
		t.Fatalf("%d are held, credit %d", n, s.ReadCredit())
	}
	offerTimers(t, s, start, 1, 3, 5) // were on their way
	n := len(take(g, 2*MaxOutstanding, start))
	if n != MaxOutstanding || g.Ready() {
		t.Fatalf("%d are handed out, the limit is %d", n, MaxOutstanding)
	}
	if bad := s.Ack(2, 1, 1, start, nil); bad != nil {
		t.Fatal(bad)
	}
	want(t, "after one ack", take(g, 9, start), "1+1@1")
}

func TestTimers_DeadLettersKeepTheirTimes(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{MaxDeliveries: 1})
	offerTimers(t, s, start, 8, 3)
	take(g, 9, start)
	if err := s.Reject(3, 1, []byte("no"), start); err != nil {
		t.Fatal(err)
	}
	dead := takeDead(g, 9)
	if len(dead) != 1 || dead[0].Seq != 3 || dead[0].Enqueued != 30 || string(dead[0].Record) != string(payload(3)) {
		t.Fatalf("dead is %+v", dead)
	}
	s.Transferred(3, start)
	if s.done.Done(8) || !s.done.Done(3) {
		t.Error("the dead letter is not done")
	}
}

func TestTimers_Refusals(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{})
	bad := map[string]func(*DueRecords){
		"nothing":       func(r *DueRecords) { *r = DueRecords{Offsets: []uint32{0}} },
		"seq 0":         func(r *DueRecords) { r.Seqs[1] = 0 },
		"offsets":       func(r *DueRecords) { r.Offsets[1] = 99 },
		"fewer times":   func(r *DueRecords) { r.DeliverAt = r.DeliverAt[:1] },
		"fewer appends": func(r *DueRecords) { r.Enqueued = r.Enqueued[:1] },
		"too short":     func(r *DueRecords) { r.Bytes = r.Bytes[:3] },
	}
	for what, spoil := range bad {
		b := &counted{}
		r := dueRecords(nil, b, 1, 2)
		if spoil(&r); core.CodeOf(s.OfferDue(r, start)) != core.CodeBadArgument || b.released != 0 {
			t.Errorf("%s is taken, released %d times", what, b.released)
		}
	}
	log := g.AddShare(extent(2), State{}, start)
	if err := log.OfferDue(dueRecords(nil, nil, 1), start); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("a share of a log takes due records: %v", err)
	}
	if g.RemoveShare(s); core.CodeOf(s.OfferDue(dueRecords(nil, nil, 1), start)) != core.CodeStale {
		t.Error("a share that was removed takes records")
	}
}

// Messages that another owner settled are settled here, read or not, begun or not.
func TestTimers_Absorb(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{})
	b := offerTimers(t, s, start, 40, 2, 30)
	want(t, "begun", take(g, 1, start), "40+1@1")
	var o State
	for _, seq := range []core.Seq{1, 2, 40, 50} {
		o.done.Ack(seq)
	}
	if n := s.Absorb(o, start); n != 4 || s.Frontier() != 2 || !s.done.Done(40) || !s.done.Done(50) {
		t.Errorf("%d settled, frontier %d", n, s.Frontier())
	}
	want(t, "the rest", take(g, 9, start), "30+1@1")
	s.Ack(30, 1, 1, start, nil)
	if err := g.check(); err != nil || b.released != 1 {
		t.Errorf("%v, released %d times", err, b.released)
	}
}

// BenchmarkTimers is one message's way through, in random order of seqs, 250 at a time.
func BenchmarkTimers(b *testing.B) {
	const n = 250
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	now := time.Unix(1_700_000_000, 0)
	s := g.AddTimers(core.ExtentID{}, State{}, now)
	seqs := make([]core.Seq, n)
	for i := range seqs {
		seqs[i] = core.Seq(1 + i*7919%n)
	}
	r := dueRecords(nil, nil, seqs...)
	deliverAt := make([]int64, n)
	var runs []Run
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		r.DeliverAt = deliverAt
		clear(deliverAt)
		if err := s.OfferDue(r, now); err != nil {
			b.Fatal(err)
		}
		for left := n; left > 0; {
			runs = g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, now, runs[:0])
			for _, run := range runs {
				left -= int(run.Count)
				s.Ack(run.Base, run.Count, run.Attempt, now, nil)
			}
		}
		for k := range r.Seqs {
			r.Seqs[k] += n
		}
	}
}
