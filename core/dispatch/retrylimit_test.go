package dispatch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestRetryLimit_Policy is the limit at its bounds, alone.
func TestRetryLimit_Policy(t *testing.T) {
	const all = math.MaxInt
	for _, x := range []struct {
		counted, owners       int64
		failed, ended, firsts int64 // since the count
		want                  int
	}{
		{counted: 0, owners: 1, want: all},
		{counted: 49, owners: 1, firsts: 500, want: all}, // below half, first attempts in flight do not count
		{counted: 50, owners: 1, want: 50},
		{counted: 50, owners: 1, firsts: 49, want: 1},
		{counted: 50, owners: 1, firsts: 50, want: 0},
		{counted: 50, owners: 1, firsts: 500, want: 0},
		{counted: 99, owners: 1, want: 1},
		{counted: 100, owners: 1, want: 0},
		{counted: 101, owners: 1, want: 0},
		{counted: 99, owners: 1, failed: 1, want: 0},
		{counted: 100, owners: 1, ended: 1, want: 1},
		{counted: 300, owners: 1, ended: 1, want: 0},
		{counted: 300, owners: 1, ended: 260, want: all},
		{counted: 49, owners: 2, want: all},
		{counted: 50, owners: 2, want: 25},
		{counted: 98, owners: 2, want: 1},
		{counted: 99, owners: 2, want: 0},
		{counted: 100, owners: 2, ended: 1, want: 0},
		{counted: 100, owners: 2, ended: 2, want: 1}, // the other half is the other host's, with the next count
		{counted: 60, owners: 2, failed: 20, want: 0},
		{counted: 0, owners: ownersUnknown, failed: 4, want: all},
		{counted: 0, owners: ownersUnknown, failed: 9, want: 1},
		{counted: 0, owners: ownersUnknown, failed: 10, want: 0},
		{counted: 0, owners: 1000, want: all},
		{counted: 1000, owners: 1000, want: 0},
	} {
		r := retryLimit{
			most: 100, counted: x.counted, owners: x.owners, until: sec, group: &Group{firsts: int32(x.firsts)},
			sum: flow{7 + x.failed, 3 + x.ended}, since: flow{7, 3},
		}
		if got := r.admit(firstsScope, 0); got != x.want {
			t.Errorf("%+v: %d are admitted", x, got)
		}
		for _, sc := range []scope{groupScope, {session: 1}, {}} {
			if got := r.admit(sc, 0); got != all {
				t.Errorf("%+v: %d retries are admitted in %+v", x, got, sc)
			}
		}
		at := r.nextDeadline(0)
		waits := at != never
		if waits != (x.want == 0) || waits && at != sec {
			t.Errorf("%+v: it has the deadline %d: %v", x, at, waits)
		}
		if got := r.admit(firstsScope, sec); got != all {
			t.Errorf("%+v: %d are admitted after the count stands no more", x, got)
		}
	}
}

// failUntilLimit takes all that is handed out, and nacks it, until nothing is left; it answers how many first
// deliveries there were.
func failUntilLimit(t *testing.T, g *Group, delay time.Duration, now time.Time) (firsts int) {
	t.Helper()
	for {
		g.Want(unlimited, true)
		for _, s := range g.shares {
			save(s, now)
		}
		for _, to := range []Destination{RetryQueue, DeadLetterQueue} {
			for _, x := range g.TakeTransfers(to, 1<<20, nil) {
				x.Share.Transferred(x.Seq, now)
			}
		}
		runs := g.Take(1, Credit{Messages: 7, Bytes: 1 << 20}, now, nil)
		if len(runs) == 0 {
			return firsts
		}
		for _, r := range runs {
			for i := range r.Count {
				if r.Attempt == 1 {
					firsts++
				}
				if err := r.Share.Nack(r.Base+core.Seq(i), r.Attempt, delay, nil, 0, now); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// limited is a group that holds 100 retries.
var limited = core.GroupSpec{MaxDelayedRetries: 100, MaxDeliveries: 3, Breaker: core.BreakerOff, NoNackThrottle: true, Delivery: core.AtLeastOnce}

// newLimited is newShare of a group that holds 100 retries, on the only host, which knows that there are none.
func newLimited(t *testing.T, n int) (*Group, *Share) {
	t.Helper()
	g, s := newShare(t, limited, n)
	g.Retries(0, 1, start)
	return g, s
}

// TestRetryLimit_AllFail: 100 first deliveries, and then one for each retry that ends, whether retries wait in memory
// or in the retry queue.
func TestRetryLimit_AllFail(t *testing.T) {
	for _, delay := range []time.Duration{0, 20 * time.Second, time.Minute} {
		t.Run(delay.String(), func(t *testing.T) {
			g, s := newLimited(t, 1000)
			now := start
			if delay > RetryQueueAfter { // they are in the retry queue, and end there
				if n := failUntilLimit(t, g, delay, now); n != 100 || g.Counters().RetryQueued != 100 || !g.RetryLimit().Reached || g.Ready() {
					t.Fatalf("%d first deliveries, %+v, %+v", n, g.Counters(), g.RetryLimit())
				}
				back := g.AddShare(extent(2), State{}, now)
				back.Returning()
				for seq := range core.Seq(10) {
					come(t, back, returned(seq+1, History{Origin: origin(seq + 1), Attempts: 1}), now)
				}
				for range 3 { // a claim, and then they come
					save(back, now)
					for _, r := range g.Take(1, Credit{Messages: 10, Bytes: 1 << 20}, now, nil) {
						if r.Share != back {
							t.Fatalf("a first delivery before a retry has ended: %+v", r)
						}
					}
				}
				back.Ack(1, 10, 2, now, nil)
				if n := failUntilLimit(t, g, delay, now); n != 10 || g.RetryLimit() != (RetryLimit{true, 100, 0, 100}) {
					t.Fatalf("%d first deliveries after ten retries have ended, %+v", n, g.RetryLimit())
				}
				return
			}
			firsts := 0
			for range 12 {
				firsts += failUntilLimit(t, g, delay, now)
				c := g.Counters()
				if d := g.Depth(); d.Retries > 100 || uint64(firsts) != min(1000, 100+c.Dead) || d.Retries != firsts-int(c.Dead) {
					t.Fatalf("%d first deliveries while %d have ended, %+v", firsts, c.Dead, d)
				}
				now = now.Add(max(delay, 10*time.Second)) // so long an exhausted message may wait for a success
				g.Tick(now)
				g.CountedRetries()
				g.Retries(uint64(g.Depth().Retries), 1, now)
			}
			if want := 1000; delay == 0 && firsts != want || firsts < 400 {
				t.Errorf("%d first deliveries", firsts)
			}
			if delay == 0 && !s.Done(1000) {
				t.Error("something is left")
			}
		})
	}
}

// TestRetryLimit_GoodOnesGoOn: a first delivery that succeeds takes no place, so all good messages are delivered while
// places are left, and one after another when there is one.
func TestRetryLimit_GoodOnesGoOn(t *testing.T) {
	g, s := newLimited(t, 1000)
	g.Retries(99, 1, start)
	n := 0
	for {
		runs := g.Take(1, Credit{Messages: 50, Bytes: 1 << 20}, start, nil)
		if len(runs) == 0 {
			break
		}
		if len(runs) != 1 || runs[0].Count != 1 {
			t.Fatalf("one place is left; handed out: %+v", runs)
		}
		n++
		s.Ack(runs[0].Base, 1, 1, start, nil)
	}
	if n != 1000 || g.RetryLimit().Reached {
		t.Errorf("%d were delivered, %+v", n, g.RetryLimit())
	}
}

// TestRetryLimit_Raised goes on as soon as the limit is higher, or a count says that there is room, or when none has
// come for a minute; and not while the group is paused.
func TestRetryLimit_Raised(t *testing.T) {
	more := limited
	more.MaxDelayedRetries = 150
	for what, raise := range map[string]func(g *Group) time.Time{
		"a higher limit":      func(g *Group) time.Time { g.Update(more.WithDefaults(), start); return start },
		"a count":             func(g *Group) time.Time { g.CountedRetries(); g.Retries(50, 1, start); return start },
		"a count of few":      func(g *Group) time.Time { g.CountedRetries(); g.Retries(0, 1, start); return start },
		"no count for a time": func(g *Group) time.Time { g.Tick(start.Add(RetriesKnownFor)); return start.Add(RetriesKnownFor) },
	} {
		g, _ := newLimited(t, 1000)
		if n := failUntilLimit(t, g, 20*time.Second, start); n != 100 || g.Ready() || len(take(g, 10, start)) > 0 {
			t.Fatalf("%s: %d first deliveries, ready %v", what, n, g.Ready())
		}
		now := raise(g)
		if !g.Ready() {
			t.Errorf("%s: not ready", what)
		}
		g.Want(Credit{}, false)
		if got := take(g, 10, now); len(got) > 0 {
			t.Errorf("%s: paused, and handed out %v", what, got)
		}
		g.Want(unlimited, true)
		if n := failUntilLimit(t, g, time.Hour, now); n < 50 && what != "no count for a time" || n < 5 {
			t.Errorf("%s: %d first deliveries", what, n)
		}
	}
}

// TestRetryLimit_OldRow has a row of before the option have the default.
func TestRetryLimit_OldRow(t *testing.T) {
	if got := NewGroup(core.GroupSpec{}).RetryLimit(); got.Most != core.DefaultMaxDelayedRetries || got.Reached {
		t.Errorf("%+v", got)
	}
}

// TestRetryLimit_Shares of several hosts stay below the limit together, whatever each of them fails between two counts,
// and none of them starves.
func TestRetryLimit_Shares(t *testing.T) {
	const hosts = 3
	random := rand.New(rand.NewPCG(1, 2))
	var all [hosts]retryLimit
	for i := range all {
		all[i].most, all[i].group = 300, new(Group)
	}
	held, ended := 0, 0
	var went [hosts]int
	for round := range 200 {
		now := int64(round) * 5 * sec
		for i := range all {
			r := &all[i]
			r.looked = r.sum
			r.counted, r.owners, r.since, r.until = int64(held), hosts, r.looked, now+60*sec
		}
		for range 50 {
			i := random.IntN(hosts)
			if n := min(all[i].admit(firstsScope, now), 40); n > 0 {
				all[i].sum.failed += int64(n)
				held += n
				went[i] += n
			}
			if n := min(random.IntN(4), held); n > 0 { // all retries end on one host: that of the retry queue
				all[0].sum.ended += int64(n)
				held -= n
				ended += n
			}
			if held > 300+hosts {
				t.Fatalf("round %d: %d retries", round, held)
			}
		}
	}
	for i, n := range went {
		if n < ended/hosts/3 {
			t.Errorf("host %d began %d of %d; %v", i, n, ended, went)
		}
	}
}

// TestRetryLimit_Counts: whatever happens to messages, the flow of retries is what the shares hold and the retry queue
// got.
func TestRetryLimit_Counts(t *testing.T) {
	ends := []core.Exhausted{core.ExhaustedDLQ, core.ExhaustedDrop, core.ExhaustedBlock}
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			spec := core.GroupSpec{
				MaxDeliveries: 1 + random.IntN(4), LockTimeout: 10 * time.Second, NoNackThrottle: true, MaxDelayedRetries: 1 + random.Int32N(60),
				Breaker: []int{core.BreakerOff, core.BreakerAlways}[random.IntN(2)], Exhausted: ends[random.IntN(len(ends))],
			}
			g, s := newShare(t, spec, 300)
			now := start
			for range 400 {
				now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
				g.Tick(now)
				g.Want(inMessages(random.IntN(50)), random.IntN(10) > 0)
				save(s, now)
				for _, to := range []Destination{RetryQueue, DeadLetterQueue} {
					for _, x := range g.TakeTransfers(to, random.IntN(5), nil) {
						if random.IntN(3) > 0 {
							x.Share.Transferred(x.Seq, now)
						} else {
							x.Share.TransferFailed(x.Seq, random.IntN(2) > 0, now.Add(time.Second), now)
						}
					}
				}
				session := SessionID(random.IntN(3))
				for _, r := range g.Take(session, Credit{Messages: random.IntN(20), Bytes: 1 << 20}, now, nil) {
					for i := range r.Count {
						seq := r.Base + core.Seq(i)
						switch random.IntN(8) {
						case 0, 1:
							s.Ack(seq, 1, r.Attempt, now, nil)
						case 2, 3, 4:
							_ = s.Nack(seq, r.Attempt, []time.Duration{0, 5 * time.Second, time.Hour}[random.IntN(3)], nil, 0, now)
						case 5:
							_ = s.Reject(seq, r.Attempt, nil, now)
						case 6:
							s.Return(session, seq, 1, r.Attempt, now, nil)
						}
					}
				}
				if random.IntN(20) == 0 {
					spec.Exhausted = ends[random.IntN(len(ends))]
					g.Update(spec.WithDefaults(), now)
				}
				if err := g.check(); err != nil {
					t.Fatal(err)
				}
				sum := g.retryLimit().sum
				if got, want := sum.failed-sum.ended, int64(g.Depth().Retries)+int64(g.Counters().RetryQueued); got != want {
					t.Fatalf("the flow is %+v: %d retries; the shares hold %d, the retry queue got %d", sum, got, g.Depth().Retries, g.Counters().RetryQueued)
				}
			}
		})
	}
}

// TestRetryLimit_NoneUntilNeeded: a group without a retry has no limit in memory, however often it is told of none. It
// knows of how many hosts it is when one comes.
func TestRetryLimit_NoneUntilNeeded(t *testing.T) {
	spec := core.GroupSpec{MaxDelayedRetries: 100, NoNackThrottle: true, Breaker: core.BreakerOff}
	g, _ := newShare(t, spec, 100)
	for i := range 3 {
		g.CountedRetries()
		g.Retries(0, 2, second(i))
		if got, want := g.RetryLimit(), (RetryLimit{Most: 100}); g.retries != nil || got != want {
			t.Fatalf("a limit %v, %+v; want none, %+v", g.retries != nil, got, want)
		}
	}
	failAll(t, g.Take(1, Credit{Messages: 10, Bytes: 1 << 20}, start, nil))
	if got := g.RetryLimit(); got.Retries != 20 || got.Most != 100 {
		t.Errorf("ten failed here, one of two hosts: %+v", got)
	}
}
