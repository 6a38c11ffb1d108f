package quota

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

// pair are two controllers, of which the first one divides until it hands over.
type pair struct {
	*harness
	keepers [2]*harness
}

func newPair(t *testing.T, inputs ...core.RunID) *pair {
	p := &pair{harness: newHarness(t)}
	for i := range p.keepers {
		k := &harness{t: t, meta: p.meta, now: p.now, extents: catalog.NewExtents(), duties: duties{others: i > 0, since: time.Hour}, inputs: inputs, consumed: p.consumed}
		k.Keeper = New(p.meta, func() time.Time { return p.now }, Sources{
			Extents: k.extents, Settled: p.Settled, Duties: &k.duties, Inputs: func() []core.RunID { return k.inputs },
			Log: slog.New(slog.DiscardHandler), Wait: func(context.Context) error { return nil },
		})
		p.keepers[i] = k
	}
	return p
}

// handOver makes one keeper responsible in place of the other.
func (p *pair) handOver(from, to int) {
	p.keepers[from].duties.others = true
	p.keepers[from].duties.handovers.Add(1)
	p.keepers[to].duties.others = false
	p.keepers[to].duties.since = 0
}

// pass lets time pass.
func (p *pair) pass(d time.Duration) {
	p.now = p.now.Add(d)
	for _, k := range p.keepers {
		k.duties.since += d
	}
}

// host publishes as much as its lease lets it.
type host struct {
	run    core.RunID
	need   float64
	away   [2]bool // the keepers that it does not reach
	amount float64
	until  time.Time
}

func (h *host) holds(now time.Time) float64 {
	if now.Before(h.until) {
		return h.amount
	}
	return 0
}

// ask asks the keepers in turn, as hosts do that know them in another order.
func (p *pair) ask(h *host, first int) {
	p.t.Helper()
	for _, i := range []int{first, 1 - first} {
		if h.away[i] {
			continue
		}
		out, err := p.keepers[i].Lease(context.Background(), &pb.LeaseQuotaRequest{Run: h.run.ID[:], Namespaces: []*pb.NamespaceNeed{
			{Namespace: "/acme", Messages: h.need, HeldMessages: h.holds(p.now)},
		}})
		if errors.Is(err, core.ErrMoved) {
			continue
		}
		p.ok(err)
		h.amount, h.until = out.Namespaces[0].Messages, p.now.Add(quota.LeaseFor)
		return
	}
}

// run has the hosts ask once a second, each another keeper first, and publish for so long. It answers how much passed,
// and the most that hosts held at a time.
func (p *pair) run(length time.Duration, hosts ...*host) (passed, most float64) {
	const step = 100 * time.Millisecond
	for at := time.Duration(0); at < length; at += step {
		sum := 0.0
		for i, h := range hosts {
			if at%quota.RenewEvery == time.Duration(1+4*i)*step {
				p.ask(h, i%2)
			}
		}
		for _, h := range hosts {
			sum += h.holds(p.now)
		}
		passed += sum * step.Seconds()
		most = max(most, sum)
		p.pass(step)
	}
	return passed, most
}

// TestLease_OneOfTwoControllersDivides: whichever is asked, and when the other one takes over.
func TestLease_OneOfTwoControllersDivides(t *testing.T) {
	const limit = 1000
	for name, c := range map[string]struct {
		needs  [2]float64
		lapse  time.Duration // between the keepers
		away   bool          // the second host does not reach the new keeper for a while
		most   float64       // held at a time while the new one begins
		begins float64       // passes in its first two seconds
	}{
		"the load is even":              {[2]float64{5000, 5000}, 0, false, limit, 1990},
		"the load is at the first":      {[2]float64{5000, 0}, 0, false, limit, 1990},
		"the load is at the second":     {[2]float64{0, 5000}, 0, false, limit, 1990},
		"nobody divides for a while":    {[2]float64{5000, 5000}, 8 * time.Second, false, limit, 1100},
		"the second host is cut off":    {[2]float64{0, 5000}, 0, true, limit * 3 / 2, 1990},
		"it is cut off from both after": {[2]float64{5000, 100}, 0, true, limit, 1900},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := &host{run: run(1), need: c.needs[0]}, &host{run: run(2), need: c.needs[1]}
			p := newPair(t, x.run, y.run, run(3)) // the third one publishes elsewhere
			p.namespace(core.NamespaceSpec{Name: "/acme", MessagesPerSecond: limit})
			p.run(10*time.Second, x, y)
			if passed, most := p.run(10*time.Second, x, y); passed < 9990 || most > limit+1e-6 {
				t.Fatalf("%g passed in 10 s, up to %g at a time, of %d a second", passed, most, limit)
			}
			p.handOver(0, 1)
			p.keepers[1].duties.others = c.lapse > 0
			p.run(c.lapse, x, y)
			p.keepers[1].duties.others, p.keepers[1].duties.since = false, 0
			y.away = [2]bool{c.away, c.away}
			first, begun := p.run(2*time.Second, x, y)
			if begun > c.most+1e-6 || first < c.begins {
				t.Errorf("in the first two seconds of the new keeper hosts held up to %g, want %g, and %g passed, want %g", begun, c.most, first, c.begins)
			}
			rest, _ := p.run(8*time.Second, x, y)
			if passed := first + rest; passed > 10*limit+limit*quota.LeaseFor.Seconds() || rest < 6*limit {
				t.Errorf("%g passed in the first 10 s of the new keeper, of %d a second, after two seconds %g", passed, limit, rest)
			}
			y.away = [2]bool{}
			p.run(10*time.Second, x, y)
			if passed, most := p.run(10*time.Second, x, y); passed < 9990 || most > limit+1e-6 {
				t.Errorf("later %g passed in 10 s, up to %g at a time, of %d a second", passed, most, limit)
			}
		})
	}
}

// TestLease_BooksOfBefore: a controller that hands over and takes over again forgets its own leases, which hosts have
// exchanged since.
func TestLease_BooksOfBefore(t *testing.T) {
	x, y := &host{run: run(1), need: 5000}, &host{run: run(2)}
	p := newPair(t, x.run, y.run)
	p.namespace(core.NamespaceSpec{Name: "/acme", MessagesPerSecond: 1000})
	p.run(5*time.Second, x, y)
	p.handOver(0, 1)
	x.need, y.need = 0, 5000
	p.run(3*time.Second, x, y)
	p.handOver(1, 0)
	if _, most := p.run(5*time.Second, x, y); most > 1000+1e-6 {
		t.Errorf("hosts held %g of 1000", most)
	}
	if y.amount < 900 {
		t.Errorf("who has the load holds %g of 1000", y.amount)
	}
}

// TestLease_OfSomeNamespaces: the answer lacks those that another controller divides.
func TestLease_OfSomeNamespaces(t *testing.T) {
	r := newHarness(t)
	r.namespace(core.NamespaceSpec{Name: "/acme", MessagesPerSecond: 1000})
	r.namespace(core.NamespaceSpec{Name: "/else", MessagesPerSecond: 1000})
	if quota.Key("/acme") == quota.Key("/else") {
		t.Fatal("the namespaces are of one range")
	}
	r.duties.only = quota.Key("/acme")
	q, other := r.queue("/acme/q", 1000), r.queue("/else/q", 1000)
	out := r.lease(run(1), &pb.LeaseQuotaRequest{
		Namespaces: []*pb.NamespaceNeed{{Namespace: "/else"}, {Namespace: "/acme"}}, Queues: []*pb.QueueFill{fillOf(other, 0), fillOf(q, 0)},
	})
	if len(out.Namespaces) != 1 || out.Namespaces[0].Namespace != "/acme" || len(out.Queues) != 1 || string(out.Queues[0].Queue) != string(q.ID[:]) {
		t.Errorf("leased %v, want what is of /acme", out)
	}
	id := run(1).ID
	_, err := r.Lease(t.Context(), &pb.LeaseQuotaRequest{Run: id[:], Queues: []*pb.QueueFill{fillOf(other, 0)}})
	if !errors.Is(err, core.ErrMoved) {
		t.Errorf("of what another controller divides: %v", err)
	}
}

// TestLease_RoomWhenBacklogIsNotKnown: one of two hosts has filled the queue nearly, and has not asked the new keeper.
func TestLease_RoomWhenBacklogIsNotKnown(t *testing.T) {
	for name, limits := range map[string]struct{ cap, backlog int64 }{"queue": {1_000_000, 0}, "namespace": {0, 1_000_000}} {
		t.Run(name, func(t *testing.T) {
			x, y, z := run(1), run(2), run(3)
			p := newPair(t, x, y, z)
			p.namespace(core.NamespaceSpec{Name: "/acme", BacklogBytes: limits.backlog})
			q := p.queue("/acme/q", limits.cap)
			p.group(q, "g")
			ofX, ofY, ofZ := p.extentRow(q, x), p.extentRow(q, y), p.extentRow(q, z)
			p.handOver(0, 1)
			p.keepers[1].duties.since = 0
			ask := func(run core.RunID, e core.ExtentID, bytes, held uint64) int64 {
				p.pass(100 * time.Millisecond)
				f := fillOf(q, 0, &pb.ExtentFill{Extent: e.ID[:], Last: bytes, Bytes: bytes})
				f.Held, f.Need = held, 1e6
				return p.keepers[1].room(run, f)[0]
			}
			if got := ask(x, ofX, 50_000, 3000); got != 3000 {
				t.Errorf("room for %d while nobody knows of how much, want the 3000 of before", got)
			}
			if got := ask(z, ofZ, 0, 2000); got != 2000 {
				t.Errorf("room for %d while nobody knows of how much, want the 2000 of before", got)
			}
			if got := ask(y, ofY, 900_000, 20_000); got < 16_000 || got > 45_000 {
				t.Errorf("room for %d of the 50,000 that are left, 5000 are given", got)
			}
			ask(x, ofX, 50_000, 3000)
			ask(z, ofZ, 0, 2000)
			if sum := ask(x, ofX, 50_000, 3000) + ask(y, ofY, 900_000, 20_000) + ask(z, ofZ, 0, 2000); sum > 50_000 || sum < 49_000 {
				t.Errorf("room for %d of the 50,000 that are left", sum)
			}
		})
	}
}

// TestLease_BacklogOfOthersExtents: another controller makes, seals and retires the extents; the catalog of this one
// does not know yet.
func TestLease_BacklogOfOthersExtents(t *testing.T) {
	p := newPair(t, run(1))
	k := p.keepers[0]
	q := p.queue("/acme/q", 100_000)
	g := p.group(q, "g")
	e := p.extentRow(q, run(1))
	fill := fillOf(q, 0, &pb.ExtentFill{Extent: e.ID[:], Last: 100, Bytes: 40_000})
	if got := k.room(run(1), fill)[0]; got != 60_000 {
		t.Errorf("room for %d beside an extent that was just made, want 60000", got)
	}
	p.settled(g, e, 50)
	p.pass(2 * time.Second)
	if got := k.room(run(1), fill)[0]; got != 80_000 {
		t.Errorf("room for %d when the half is consumed, want 80000", got)
	}
	p.seal(e, metadata.SealRecord{State: core.ExtentSealed, L: 200, Bytes: 80_000})
	p.pass(2 * time.Second)
	if got := k.room(run(1), fillOf(q, 0))[0]; got != 40_000 {
		t.Errorf("room for %d when it was sealed with twice as much, want 40000", got)
	}
	p.seal(e, metadata.SealRecord{State: core.ExtentRetired, L: 200, Bytes: 80_000})
	p.pass(2 * time.Second)
	if got := k.room(run(1), fillOf(q, 0))[0]; got != 100_000 {
		t.Errorf("room for %d when it was retired, want all", got)
	}
}

// extentRow makes the row of an extent that a run writes.
func (r *harness) extentRow(queue core.QueueID, run core.RunID) core.ExtentID {
	r.t.Helper()
	e := metadata.ExtentRecord{Extent: core.Extent{ID: core.ExtentID{ID: core.NewID(r.now)}, Queue: queue, InputRun: run}}
	r.ok(metadata.Write(context.Background(), r.meta, metadata.Extents, metadata.ExtentKey(queue, e.ID), e, r.now, 0, metadata.One))
	return e.ID
}

// seal writes the row that says how an extent ends.
func (r *harness) seal(e core.ExtentID, row metadata.SealRecord) {
	r.t.Helper()
	row.Extent.ID = e
	_, err := metadata.Change(context.Background(), r.meta, metadata.Seals, metadata.SealKey(e), func(s *metadata.SealRecord) error {
		row.Version = s.Version + 1
		*s = row
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		row.Version = 1
		err = metadata.Create(context.Background(), r.meta, metadata.Seals, metadata.SealKey(e), row)
	}
	r.ok(err)
}
