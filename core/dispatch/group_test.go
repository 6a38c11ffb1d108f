package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
)

var start = time.Unix(1_700_000_000, 0)

func extent(i byte) core.ExtentID { return core.ExtentID{ID: core.ID{15: i}} }

func newShare(t *testing.T, spec core.GroupSpec, n int) (*Group, *Share) {
	t.Helper()
	g := NewGroup(spec.WithDefaults())
	s := g.AddShare(extent(1), State{}, start)
	if n > 0 {
		offer(t, s, n)
	}
	t.Cleanup(func() {
		if err := g.check(); err != nil {
			t.Error(err)
		}
	})
	return g, s
}

func offer(t *testing.T, s *Share, n int) {
	t.Helper()
	if err := s.Offer(records(s.ReadFrom(), n, nil), start); err != nil {
		t.Fatal(err)
	}
}

// take names what a Take hands out: base+count@attempt.
func take(g *Group, messages int, now time.Time) []string {
	var out []string
	for _, r := range g.Take(1, Credit{Messages: messages, Bytes: 1 << 20}, now, nil) {
		out = append(out, fmt.Sprintf("%d+%d@%d", r.Base, r.Count, r.Attempt))
	}
	return out
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// takeDead saves a checkpoint of each share, without which nothing leaves, and takes the messages that are to be
// dead-lettered.
func takeDead(g *Group, most int) []Transfer {
	for _, s := range g.shares {
		save(s, time.Unix(0, g.now))
	}
	return g.TakeTransfers(DeadLetterQueue, most, nil)
}

func save(s *Share, now time.Time) []byte {
	blob, token := s.Checkpoint(nil, false, now)
	s.Saved(token)
	return blob
}

func TestGroup_RetryWaitsForItsCount(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 3)
	want(t, "first", take(g, 10, start), "1+3@1")
	if err := s.Nack(2, 1, 0, []byte("busy"), 0, start); err != nil {
		t.Fatal(err)
	}
	want(t, "nothing is saved", take(g, 10, start))
	if s.Unsaved() != 1 || g.Ready() {
		t.Fatalf("unsaved %d, ready %v, want 1, false", s.Unsaved(), g.Ready())
	}
	_, early := s.Checkpoint(nil, false, start)
	if err := s.Nack(3, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	_, late := s.Checkpoint(nil, false, start)
	s.Saved(early)
	want(t, "only what the checkpoint held", take(g, 10, start), "2+1@2")
	s.Saved(late)
	want(t, "the other", take(g, 10, start), "3+1@2")
}

func TestGroup_LockExpiresAndDelaysEnd(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: 10 * time.Second}, 3)
	take(g, 10, start)
	if err := s.Extend(1, 1, 30*time.Second, start); err != nil {
		t.Fatal(err)
	}
	if err := s.Nack(2, 1, 2*time.Second, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at    time.Duration
		seq   string
		depth Depth
	}{
		{2 * time.Second, "2+1@2", Depth{InFlight: 3, Retries: 1}},
		{10 * time.Second, "3+1@2", Depth{InFlight: 3, Retries: 2}},
		{12 * time.Second, "2+1@3", Depth{InFlight: 3, Retries: 2}},
		{20 * time.Second, "3+1@3", Depth{InFlight: 3, Retries: 2}},
		{22 * time.Second, "2+1@4", Depth{InFlight: 3, Retries: 2}},
		{30 * time.Second, "3+1@4", Depth{InFlight: 2, Ready: 1, Retries: 3}},
	} {
		at, ok := g.NextDeadline()
		if !ok || !at.Equal(start.Add(step.at)) {
			t.Fatalf("next deadline: got %s, %v, want %s", at.Sub(start), ok, step.at)
		}
		g.Tick(at.Add(-1))
		want(t, "before its time", take(g, 1, at.Add(-1)))
		g.Tick(at)
		save(s, at)
		want(t, step.at.String(), take(g, 1, at), step.seq)
		d := g.Depth()
		d.OldestReady = 0
		if d != step.depth {
			t.Fatalf("at %s: got %+v, want %+v", step.at, d, step.depth)
		}
	}
}

func TestGroup_LowerLockTimeout(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: time.Minute}, 4)
	take(g, 2, start)
	g.Update(core.GroupSpec{LockTimeout: time.Second}.WithDefaults(), start)
	take(g, 2, start)
	g.Tick(start.Add(time.Second))
	save(s, start)
	want(t, "the later two first", take(g, 9, start.Add(time.Second)), "3+2@2")
}

func TestGroup_Backoff(t *testing.T) {
	backoff := core.Backoff{Min: time.Second, Factor: 2, Max: time.Minute, Jitter: 0.5}
	g, s := newShare(t, core.GroupSpec{Backoff: backoff}, 1)
	take(g, 1, start)
	if err := s.Nack(1, 1, -1, nil, 1, start); err != nil {
		t.Fatal(err)
	}
	if at, _ := g.NextDeadline(); !at.Equal(start.Add(1500 * time.Millisecond)) {
		t.Errorf("got %s, want 1.5s", at.Sub(start))
	}
}

// A last attempt that is lost with its consumer must not take with it what an earlier consumer said: a crash then makes
// a dead letter nobody can explain.
func TestGroup_ExpiredLockKeepsTheText(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, Breaker: core.BreakerOff}, 1)
	take(g, 1, start)
	if err := s.Nack(1, 1, 0, []byte("boom"), 0, start); err != nil {
		t.Fatal(err)
	}
	save(s, start)
	take(g, 1, start)
	g.Tick(start.Add(time.Minute))
	dead := takeDead(g, 1)
	if len(dead) != 1 || dead[0].Failure != LockTimedOut || dead[0].Text != "boom" {
		t.Fatalf("got %+v, want the lock's end as the reason, and the text of the nack before", dead)
	}
}

func TestGroup_ExactlyMaxDeliveries(t *testing.T) {
	for _, policy := range []core.Exhausted{core.ExhaustedDLQ, core.ExhaustedDrop, core.ExhaustedBlock} {
		t.Run(string(policy), func(t *testing.T) {
			g, s := newShare(t, core.GroupSpec{MaxDeliveries: 3, Exhausted: policy}, 1)
			now, deliveries := start, 0
			for range 10 {
				runs := g.Take(9, Credit{Messages: 1, Bytes: 100}, now, nil)
				deliveries += len(runs)
				if deliveries == 2 && len(runs) == 1 {
					now = now.Add(time.Minute)
					g.Tick(now) // one of the failures is a lock that expires
				} else if len(runs) == 1 {
					if err := s.Nack(1, runs[0].Attempt, 0, []byte("boom"), 0, now); err != nil {
						t.Fatal(err)
					}
				}
				save(s, now)
			}
			if deliveries != 3 {
				t.Fatalf("got %d deliveries, want 3", deliveries)
			}
			now = now.Add(routes[DeadLetterQueue].patience)
			g.Tick(now)
			save(s, now)
			dead := takeDead(g, 10)
			switch policy {
			case core.ExhaustedDLQ:
				if len(dead) != 1 || dead[0].Attempts != 3 || dead[0].Text != "boom" || dead[0].Failure.String() != "nack" || dead[0].Session != 9 {
					t.Fatalf("got %+v", dead)
				}
				if again := takeDead(g, 10); again != nil {
					t.Fatalf("yielded twice: %+v", again)
				}
				s.TransferFailed(1, false, now.Add(time.Second), now)
				if early := takeDead(g, 10); early != nil {
					t.Fatalf("yielded before its time: %+v", early)
				}
				g.Tick(now.Add(time.Second))
				if again := takeDead(g, 10); len(again) != 1 {
					t.Fatalf("a failed dead letter is lost: %+v", again)
				}
				s.Transferred(1, now)
				if !s.Done(1) || g.Counters().Dead != 1 {
					t.Fatalf("done %v, counters %+v", s.Done(1), g.Counters())
				}
			case core.ExhaustedDrop:
				if dead != nil || !s.Done(1) || g.Counters().Dropped != 1 {
					t.Fatalf("dead %v, done %v, counters %+v", dead, s.Done(1), g.Counters())
				}
			case core.ExhaustedBlock:
				if dead != nil || s.Done(1) || g.Depth().Blocked != 1 {
					t.Fatalf("dead %v, done %v, depth %+v", dead, s.Done(1), g.Depth())
				}
				g.Update(core.GroupSpec{MaxDeliveries: 4}.WithDefaults(), now)
				save(s, now)
				want(t, "one more is allowed now", take(g, 1, now), "1+1@4")
			}
		})
	}
}

func TestGroup_RejectEndsAtOnce(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	if err := s.Reject(1, 1, []byte("never"), start); err != nil {
		t.Fatal(err)
	}
	blob := save(s, start)
	st, err := DecodeState(blob)
	if err != nil {
		t.Fatal(err)
	}
	g2 := NewGroup(core.GroupSpec{}.WithDefaults())
	s2 := g2.AddShare(extent(1), st, start)
	if dead := takeDead(g2, 1); dead != nil {
		t.Fatalf("yielded without bytes: %+v", dead)
	}
	offer(t, s2, 1)
	g2.Tick(start.Add(TransferDoubt))
	for _, g := range []*Group{g, g2} {
		if dead := takeDead(g, 1); len(dead) != 1 || dead[0].Failure != Rejected || dead[0].Text != "never" || dead[0].Attempts != 1 {
			t.Errorf("got %+v", dead)
		}
	}
}

func TestGroup_StaleSettlements(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: time.Second}, 2)
	take(g, 1, start)
	g.Tick(start.Add(time.Second))
	save(s, start)
	for what, err := range map[string]error{
		"nack":   s.Nack(1, 1, 0, nil, 0, start),
		"reject": s.Reject(1, 1, nil, start),
		"extend": s.Extend(1, 1, time.Second, start),
	} {
		if core.CodeOf(err) != core.CodeStale {
			t.Errorf("%s after the lock ran out: got %v, want %s", what, err, core.CodeStale)
		}
	}
	huge := ^uint32(0)
	for what, got := range map[string][]Refusal{
		"not handed out": s.Ack(2, 1, 1, start, nil),
		"not that often": s.Ack(1, 1, 2, start, nil),
		"attempt 0":      s.Ack(1, 1, 0, start, nil),
		"huge":           s.Ack(1, huge, 1, start, nil),
		"return":         s.Return(1, 1, 1, 1, start, nil),
		"huge return":    s.Return(1, 1, huge, 1, start, nil),
		"past the end":   s.Ack(^core.Seq(0), 9, 1, start, nil),
	} {
		if len(got) != 1 || got[0].Code != core.CodeStale {
			t.Errorf("%s: got %v, want one refusal", what, got)
		}
	}
	if bad := s.Ack(1, 1, 1, start, nil); bad != nil {
		t.Errorf("a late ack of the first attempt: %v", bad)
	}
	if bad := s.Ack(1, 2, 1, start, nil); !cmp.Equal(bad, []Refusal{{1, 2, core.CodeStale}}) {
		t.Errorf("refusals in a row: %v", bad)
	}
}

func TestGroup_SharesTakeTurns(t *testing.T) {
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	for i := range byte(3) {
		offer(t, g.AddShare(extent(i), State{}, start), 1000)
	}
	got := map[core.ExtentID]int{}
	for range 3 {
		for _, r := range g.Take(1, Credit{Messages: 300, Bytes: 1 << 20}, start, nil) {
			got[r.Share.Extent()] += int(r.Count)
		}
	}
	for e, n := range got {
		if n < 200 {
			t.Errorf("extent %s got %d of 900 turns' messages", e, n)
		}
	}
	if err := g.check(); err != nil || len(got) != 3 {
		t.Fatal(len(got), err)
	}
}

func TestGroup_RetriesDoNotStarveFirstDeliveries(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true}, 1000)
	first := 0
	for range 20 {
		for _, r := range g.Take(1, Credit{Messages: 20, Bytes: 1 << 20}, start, nil) {
			if r.Attempt == 1 {
				first += int(r.Count)
			}
			for i := range r.Count {
				if err := s.Nack(r.Base+core.Seq(i), r.Attempt, 0, nil, 0, start); err != nil {
					t.Fatal(err)
				}
			}
		}
		save(s, start)
	}
	if first < 320 {
		t.Errorf("got %d first deliveries of 400, want at least 320", first)
	}
}

func TestShare_ChangedUntilSaved(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 2)
	if s.Changed() {
		t.Error("reading alone is a change")
	}
	take(g, 1, start)
	_, token := s.Checkpoint(nil, false, start)
	if !s.Changed() {
		t.Error("a checkpoint that is not durable ends the change")
	}
	s.Ack(1, 1, 1, start, nil)
	if s.Saved(token); !s.Changed() {
		t.Error("the ack after the checkpoint is forgotten")
	}
	if save(s, start); s.Changed() {
		t.Error("a saved checkpoint leaves a change")
	}
}

func TestGroup_LowerMaxDeliveries(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 5}, 3)
	for attempt := range uint16(2) {
		g.Take(1, Credit{Messages: 3, Bytes: 1000}, start, nil)
		s.Nack(1, attempt+1, 0, nil, 0, start)
		s.Nack(2, attempt+1, time.Duration(attempt)*20*time.Second, nil, 0, start)
		save(s, start)
	}
	g.Update(core.GroupSpec{MaxDeliveries: 2}.WithDefaults(), start)
	want(t, "what had its last attempt", take(g, 9, start))
	g.Tick(second(5))
	save(s, second(5))
	if dead := takeDead(g, 9); len(dead) != 2 {
		t.Fatalf("got %d dead, want 2", len(dead))
	}
	s.Transferred(1, start)
	s.Transferred(2, start)
}

// TestGroup_UpdateEndsClaims has a retry that is counted by a checkpoint under way be blocked, and come back, by two
// updates: it waits for a checkpoint that counts it after that, since the one in between does not.
func TestGroup_UpdateEndsClaims(t *testing.T) {
	block := core.GroupSpec{MaxDeliveries: 2, Exhausted: core.ExhaustedBlock}
	g, s := newShare(t, block, 1)
	take(g, 1, start)
	if err := s.Nack(1, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	s.Checkpoint(nil, false, start)
	fewer := block
	fewer.MaxDeliveries = 1
	g.Update(fewer.WithDefaults(), start)
	blob, token := s.Checkpoint(nil, false, start)
	if e := decode(t, blob).messages[1]; e.kind != kindBlocked {
		t.Fatalf("saved as %+v, want blocked", e)
	}
	g.Update(block.WithDefaults(), start)
	s.Saved(token)
	want(t, "no durable checkpoint counts it", take(g, 1, start))
	save(s, start)
	want(t, "it is counted", take(g, 1, start), "1+1@2")
}
