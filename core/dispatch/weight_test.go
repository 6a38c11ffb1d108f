package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// light is a batch of records of one byte.
func light(base core.Seq, n int) Records {
	r := Records{Base: base, Offsets: make([]uint32, n+1), Bytes: make([]byte, n), Enqueued: 1}
	for i := range r.Offsets {
		r.Offsets[i] = uint32(i)
	}
	return r
}

// sparse is a share of which one of every n messages was handed out and is not settled, most of them in all; the others
// are acked.
func sparse(t interface{ Fatal(...any) }, n, most int) (*Group, *Share, []core.Seq) {
	g := NewGroup(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true}.WithDefaults())
	s := g.AddShare(extent(1), State{}, start)
	var held []core.Seq
	for len(held) < most {
		if err := s.Offer(light(s.ReadFrom(), n), start); err != nil {
			t.Fatal(err)
		}
		runs := g.Take(1, Credit{Messages: n, Bytes: 1 << 20}, start, nil)
		if len(runs) == 0 {
			t.Fatal("nothing is handed out after", len(held), "of", most)
		}
		for _, r := range runs {
			held = append(held, r.Base)
			if r.Count > 1 {
				s.Ack(r.Base+1, r.Count-1, r.Attempt, start, nil)
			}
		}
	}
	return g, s, held
}

// retried goes on until all messages are settled: what is handed out is acked. It answers how many checkpoints that
// took.
func retried(t interface{ Fatalf(string, ...any) }, g *Group, s *Share, now time.Time) (checkpoints int) {
	for s.outstanding() > 0 {
		if checkpoints++; checkpoints > 1000 {
			t.Fatalf("stuck: %+v, full %v", s.Depth(), s.Full())
		}
		now = now.Add(time.Second)
		g.Tick(now)
		blob, token := s.Checkpoint(nil, false, now)
		if len(blob) > MaxCheckpoint {
			t.Fatalf("a checkpoint has %d bytes", len(blob))
		}
		s.Saved(token)
		for to := range Destination(Destinations) {
			for _, x := range g.TakeTransfers(to, MaxOutstanding, nil) {
				s.Transferred(x.Seq, now)
			}
		}
		for _, r := range g.Take(1, Credit{Messages: MaxOutstanding, Bytes: 1 << 30}, now, nil) {
			s.Ack(r.Base, r.Count, r.Attempt, now, nil)
		}
	}
	return checkpoints
}

// TestCheckpoint_CutShortReleasesWhatItHolds: so many messages fail at once that no checkpoint has room for all of
// them. The retries that it has room for go on.
func TestCheckpoint_CutShortReleasesWhatItHolds(t *testing.T) {
	for _, x := range []struct{ apart, failed int }{{200, 8000}, {100, 9900}} {
		g, s, held := sparse(t, x.apart, x.failed)
		for i, seq := range held {
			if err := s.Nack(seq, 1, time.Duration(i*7919%1000)*time.Millisecond, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
		if _, _ = s.Checkpoint(nil, false, start.Add(time.Minute)); !s.Full() {
			t.Errorf("%d failed messages %d apart leave room", x.failed, x.apart)
		}
		if n := retried(t, g, s, start.Add(time.Minute)); n > 20 {
			t.Errorf("%d failed messages %d apart took %d checkpoints", x.failed, x.apart, n)
		}
	}
}

// TestShare_LocksOfFirstAttemptsDoNotFill: messages that were handed out for the first time need no room in a
// checkpoint.
func TestShare_LocksOfFirstAttemptsDoNotFill(t *testing.T) {
	_, s, held := sparse(t, 20, MaxOutstanding-200)
	for i, seq := range held { // each has a lock of its own
		if err := s.Extend(seq, 1, time.Duration(i*7919%100_000)*time.Second, start); err != nil {
			t.Fatal(err)
		}
	}
	if s.Checkpoint(nil, false, start); s.Full() || !s.WantsMore() {
		t.Errorf("%d locks fill the share", len(held))
	}
}

// TestShare_StopsBeforeCheckpointsAreFull has messages fail until first deliveries stop, and compares the estimate of a
// checkpoint with what it is.
func TestShare_StopsBeforeCheckpointsAreFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		apart, every := rapid.IntRange(1, 300).Draw(t, "apart"), rapid.IntRange(200, 3000).Draw(t, "failures between two checkpoints")
		wait := rapid.SampledFrom([]int{1, 1000, 29_000}).Draw(t, "longest wait, ms")
		g := NewGroup(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Exhausted: core.ExhaustedBlock, Breaker: core.BreakerOff, NoNackThrottle: true}.WithDefaults())
		s := g.AddShare(extent(1), State{}, start)
		failed := 0
		for s.WantsMore() {
			if err := s.Offer(light(s.ReadFrom(), apart), start); err != nil {
				t.Fatal(err)
			}
			for _, r := range g.Take(1, Credit{Messages: apart, Bytes: 1 << 20}, start, nil) {
				if err := s.Nack(r.Base, 1, time.Duration(1+failed*7919%wait)*time.Millisecond, nil, 0, start); err != nil {
					t.Fatal(err)
				}
				if r.Count > 1 {
					s.Ack(r.Base+1, r.Count-1, 1, start, nil)
				}
				if failed++; failed%every == 0 {
					s.Checkpoint(nil, false, start)
				}
			}
		}
		if !s.full { // it is at another limit
			return
		}
		estimate := s.done.SizeMost() + min(failed*entryMost, s.weight.entries+s.weight.failures*entryMost)
		f := fit(nil, &g.policies, nil, &s.done, inOrder(s.draftEntries(false, g.now)))
		if f.level > everything || len(f.blob) > estimate || len(f.blob) < estimate/3 {
			t.Fatalf("after %d failures a checkpoint is %d bytes, and was estimated at %d", failed, len(f.blob), estimate)
		}
	})
}

// TestShare_NothingStaysForEver has many messages fail in any pattern, each some times, and expects all to be settled.
func TestShare_NothingStaysForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, s, held := sparse(t, rapid.IntRange(1, 250).Draw(t, "apart"), rapid.IntRange(500, 9700).Draw(t, "failed"))
		now := start
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			part := rapid.IntRange(1, 4).Draw(t, "one of … is acked")
			wait := rapid.SampledFrom([]int{1, 5000, 20_000, 60_000}).Draw(t, "longest wait, ms")
			attempt := uint16(round + 1)
			for i, seq := range held {
				if m := s.current(seq, attempt); m == nil {
					continue
				}
				if i%(part+1) == part {
					s.Ack(seq, 1, attempt, now, nil)
				} else if err := s.Nack(seq, attempt, time.Duration(i*7919%wait)*time.Millisecond, nil, 0, now); err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(30 * time.Second)
			g.Tick(now)
			_, token := s.Checkpoint(nil, false, now)
			s.Saved(token)
			g.Take(1, Credit{Messages: rapid.IntRange(1, 10_000).Draw(t, "credit"), Bytes: 1 << 30}, now, nil)
			if err := g.check(); err != nil {
				t.Fatal(err)
			}
		}
		retried(t, g, s, now.Add(time.Minute))
	})
}

// TestShare_FullReadsWhatItLacks: a share whose checkpoints are full is resumed, and saved before its messages are
// read. It still reads those, or nothing of it could ever go on.
func TestShare_FullReadsWhatItLacks(t *testing.T) {
	g, s, held := sparse(t, 200, 8000)
	for i, seq := range held {
		if err := s.Nack(seq, 1, time.Duration(i*7919%29_000)*time.Millisecond, nil, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	st, err := DecodeState(save(s, start))
	if err != nil {
		t.Fatal(err)
	}
	next := NewGroup(g.spec)
	s = next.AddShare(extent(1), st, start)
	if save(s, start); s.Lacks() && !s.WantsMore() {
		t.Fatalf("it lacks %d messages, and reads nothing", s.missing)
	}
}
