package dispatch

import (
	"bytes"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestShare_StopsReadingAtItsLimits(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 0)
	for i := 0; s.WantsMore(); i++ {
		if i > 100 {
			t.Fatal("a share without consumers reads on for ever")
		}
		if c := s.ReadCredit(); c <= 0 {
			t.Fatalf("wants more, but credit is %d", c)
		}
		offer(t, s, 1000)
	}
	if s.ReadCredit() != 0 || s.outstanding() != MaxOutstanding {
		t.Fatalf("credit %d at %d outstanding", s.ReadCredit(), s.outstanding())
	}
	take(g, 1, start)
	s.Ack(1, 1, 1, start, nil)
	if !s.WantsMore() {
		t.Fatal("an ack made no room")
	}
}

func TestShare_StopsReadingAtItsBytes(t *testing.T) {
	_, s := newShare(t, core.GroupSpec{}, 0)
	for n := 0; s.WantsMore(); n++ {
		if n == 65 {
			t.Fatalf("%d MiB read", n)
		}
		r := Records{Base: s.ReadFrom(), Offsets: []uint32{0, 1 << 20}, Bytes: make([]byte, 1<<20)}
		if err := s.Offer(r, start); err != nil {
			t.Fatal(err)
		}
	}
}

// One message of each batch is never settled: the batches must not be held for them.
func TestShare_FewMessagesDoNotPinTheirBatches(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Breaker: core.BreakerOff}, 0)
	var buffers []*counted
	const size = 64 << 10
	for range 80 {
		r := Records{Base: s.ReadFrom(), Offsets: []uint32{0}, Buffer: &counted{}}
		for i := range 16 {
			r.Bytes = append(r.Bytes, bytes.Repeat([]byte{byte(r.Base) + byte(i)}, size)...)
			r.Offsets = append(r.Offsets, uint32(len(r.Bytes)))
		}
		buffers = append(buffers, r.Buffer.(*counted))
		buffers[len(buffers)-1].bytes = r.Bytes
		if !s.WantsMore() {
			t.Fatalf("stops at seq %d with %d bytes held", r.Base, s.heldBytes)
		}
		if err := s.Offer(r, start); err != nil {
			t.Fatal(err)
		}
		for _, run := range g.Take(1, Credit{Messages: 16, Bytes: 2 << 20}, start, nil) {
			if run.Base%16 == 1 {
				run.Base, run.Count = run.Base+1, run.Count-1
			}
			if bad := s.Ack(run.Base, run.Count, 1, start, nil); bad != nil {
				t.Fatal(bad)
			}
		}
	}
	now := start.Add(time.Hour)
	g.Tick(now)
	save(s, now)
	got := 0
	for _, r := range g.Take(1, Credit{Messages: 1000, Bytes: 100 << 20}, now, nil) {
		if !bytes.Equal(r.Bytes, bytes.Repeat([]byte{byte(r.Base)}, size)) {
			t.Fatalf("seq %d has the wrong bytes", r.Base)
		}
		got += int(r.Count)
		s.Ack(r.Base, r.Count, 2, now, nil)
	}
	if got != 80 {
		t.Errorf("got %d retries, want 80", got)
	}
	for i, b := range buffers {
		if b.released != 1 {
			t.Fatalf("buffer %d released %d times", i, b.released)
		}
	}
}

// A buffer may keep more alive than its batch: it is not held for long, however few bytes the share holds.
func TestShare_OldBuffersAreReleased(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 0)
	var buffers []*counted
	for range 1000 {
		b := &counted{}
		r := records(s.ReadFrom(), 2, b)
		b.bytes = r.Bytes
		buffers = append(buffers, b)
		if err := s.Offer(r, start); err != nil {
			t.Fatal(err)
		}
	}
	held := 0
	for _, b := range buffers {
		held += 1 - b.released
	}
	if held > 2*squeezeAge {
		t.Errorf("%d buffers are held", held)
	}
	for _, r := range g.Take(1, Credit{Messages: 2000, Bytes: 1 << 20}, start, nil) {
		if !bytes.Equal(r.Bytes[:len(payload(r.Base))], payload(r.Base)) {
			t.Fatalf("seq %d has the wrong bytes", r.Base)
		}
	}
}

func TestShare_OneStuckMessageCostsLittle(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: core.MaxLockTimeout}, 1)
	take(g, 1, start)
	now := start
	for range 100 {
		offer(t, s, 1000)
		now = now.Add(time.Millisecond)
		for g.Ready() {
			for _, r := range g.Take(1, Credit{Messages: 7, Bytes: 1 << 20}, now, nil) {
				if err := s.Extend(r.Base, 1, time.Hour, now); err != nil {
					t.Fatal(err)
				}
				s.Ack(r.Base, r.Count, 1, now, nil)
			}
		}
	}
	blob := save(s, now)
	if len(s.table.chunks) != 1 || g.locks.len() > 200 || len(g.timers) > 200 || len(blob) > 64 || len(s.held) != 1 {
		t.Errorf("got %d chunks, %d locks, %d timers, %d batches, blob of %d bytes", len(s.table.chunks), g.locks.len(), len(g.timers), len(s.held), len(blob))
	}
}

func TestTake_ByteCredit(t *testing.T) {
	g, _ := newShare(t, core.GroupSpec{}, 20)
	size := len(payload(1))
	if runs := g.Take(1, Credit{Messages: 9, Bytes: size - 1}, start, nil); runs != nil {
		t.Fatalf("took %v beyond its bytes", runs)
	}
	if runs := g.Take(1, Credit{Messages: 9, Bytes: size - 1, Largest: AnySize}, start, nil); len(runs) != 1 || runs[0].Count != 1 {
		t.Fatalf("an oversize message alone: got %v", runs)
	}
	bytes := len(payload(2)) + len(payload(3))
	if runs := g.Take(1, Credit{Messages: 9, Bytes: bytes + 1}, start, nil); len(runs) != 1 || runs[0].Count != 2 || len(runs[0].Bytes) != bytes {
		t.Fatalf("two messages: got %v", runs)
	}
}

func TestOffer_Refuses(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 0)
	good := records(1, 3, nil)
	cases := map[string]Records{
		"seq 0":       {Base: 0, Offsets: good.Offsets, Bytes: good.Bytes},
		"no records":  {Base: 1, Offsets: []uint32{0}},
		"no offsets":  {Base: 1},
		"expiries":    {Base: 1, Offsets: good.Offsets, Bytes: good.Bytes, Expire: make([]int64, 2)},
		"short":       {Base: 1, Offsets: good.Offsets, Bytes: good.Bytes[1:]},
		"not rising":  {Base: 1, Offsets: []uint32{0, 5, 3}, Bytes: good.Bytes},
		"past seqs":   {Base: ^core.Seq(0) - 1, Offsets: good.Offsets, Bytes: good.Bytes},
		"after a gap": {Base: 2, Offsets: good.Offsets, Bytes: good.Bytes},
	}
	for name, r := range cases {
		if err := s.Offer(r, start); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	g.RemoveShare(s)
	g.RemoveShare(s)
	if err := s.Offer(good, start); core.CodeOf(err) != core.CodeStale || s.WantsMore() || s.AckProven(1, start) {
		t.Errorf("a removed share: got %v", err)
	}
}

func TestAllocations(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 10_000)
	var runs []Run
	var bad []Refusal
	cycle := func() {
		runs = g.Take(1, Credit{Messages: 10, Bytes: 1 << 20}, start, runs[:0])
		for _, r := range runs {
			for i := range r.Count {
				bad = s.Ack(r.Base+core.Seq(i), 1, r.Attempt, start, bad[:0])
			}
		}
	}
	cycle()
	if got := testing.AllocsPerRun(500, cycle); got != 0 {
		t.Errorf("got %v allocations per 10 messages, want 0", got)
	}
}

// Blocked messages are part of the window of outstanding messages: a group whose messages all fail stops there, and
// goes on with each one that is settled.
func TestGroup_BlockIsBounded(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 1, Exhausted: core.ExhaustedBlock, Breaker: core.BreakerOff, NoNackThrottle: true}, 0)
	taken := 0
	for s.WantsMore() {
		offer(t, s, 1000)
		for g.Ready() {
			runs := g.Take(1, Credit{Messages: 1000, Bytes: 1 << 20}, start, nil)
			for _, r := range runs {
				for i := range r.Count {
					if err := s.Nack(r.Base+core.Seq(i), 1, 0, nil, 0, start); err != nil {
						t.Fatal(err)
					}
				}
				taken += int(r.Count)
			}
		}
	}
	if d := g.Depth(); taken != MaxOutstanding || d.Blocked != MaxOutstanding || s.Frontier() != 0 {
		t.Fatalf("%d were handed out, %+v; want %d blocked", taken, d, MaxOutstanding)
	}
	blob := save(s, start)
	if bad := s.Ack(5, 1, 1, start, nil); bad != nil || !s.WantsMore() {
		t.Errorf("a late ack of a blocked message: %v; wants more %v", bad, s.WantsMore())
	}
	g.Update(core.GroupSpec{MaxDeliveries: 1, Exhausted: core.ExhaustedDrop}.WithDefaults(), start)
	if !s.Done(MaxOutstanding) {
		t.Errorf("the frontier is %d after the group drops", s.Frontier())
	}
	st, err := DecodeState(blob)
	if err != nil {
		t.Fatal(err)
	}
	again := NewGroup(core.GroupSpec{MaxDeliveries: 1, Exhausted: core.ExhaustedBlock}.WithDefaults())
	if again.AddShare(extent(1), st, start); again.Depth().Blocked != MaxOutstanding {
		t.Errorf("after a restart %+v, want %d blocked", again.Depth(), MaxOutstanding)
	}
}
