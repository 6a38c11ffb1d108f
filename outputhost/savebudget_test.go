package outputhost

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
)

// rowTimes is metadata that knows when which checkpoint was written.
type rowTimes struct {
	metadata.Store
	mu    sync.Mutex
	times []time.Time
	byRow map[string][]time.Time // by partition: of one owner here
	fails bool
}

func (r *rowTimes) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	r.mu.Lock()
	for _, row := range rows {
		r.times = append(r.times, time.Now())
		r.byRow[row.Key.Partition] = append(r.byRow[row.Key.Partition], time.Now())
	}
	fails := r.fails
	r.mu.Unlock()
	if fails {
		return core.Errorf(core.CodeUnavailable, "away")
	}
	return r.Store.PutAll(ctx, t, rows, c)
}

// busiest is how many rows were written in the second that has most of them.
func busiest(times []time.Time) (most int) {
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// longest is the longest time between two checkpoints of a share after from, and from its last one until to.
func (r *rowTimes) longest(from, to time.Time) (most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.byRow {
		last := from
		for _, at := range append(slices.Clone(times), to) {
			if at.After(from) {
				most = max(most, at.Sub(last))
				last = at
			}
		}
	}
	return most
}

// crowd is a host whose shares have messages that are handed out, one of a cluster of several output hosts.
type crowd struct {
	*harness
	meta   *rowTimes
	shares []*share
	acked  core.Seq // by each
}

const crowdGroup = 1000 // shares of a group

func newCrowd(t testing.TB, self, hosts, shares int) *crowd {
	t.Helper()
	var others []membership.Host
	for i := range hosts {
		others = append(others, membership.Host{ID: core.HostID(fmt.Sprint("out", i)), Roles: []string{"outputhost"}, Address: fmt.Sprintf("out%d:1", i), Run: core.RunID{ID: core.NewID(time.Now())}})
	}
	me := others[self]
	members, err := static.New(me, slices.Delete(others, self, self+1)...)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{harness: newHarness(t)}
	c.deps.Members = members
	var list []*pb.Assignment
	for len(list) < shares {
		_, first := c.group()
		e, err := convert.Extent(first.Extent)
		if err != nil {
			t.Fatal(err)
		}
		for range min(crowdGroup, shares-len(list)) {
			e.ID = core.ExtentID{ID: core.NewID(time.Now())}
			list = append(list, &pb.Assignment{Group: first.Group, Name: first.Name, Extent: convert.ExtentToProto(e), Counter: 1, By: first.By})
		}
	}
	if err := c.give(1, list...); err != nil {
		t.Fatal(err)
	}
	const held = 200
	time.Sleep(2 * dispatch.OwnerLease) // a pump hands out nothing from now on, and stops nothing because no consumer is there
	for _, g := range c.groupList() {
		g.mu.Lock()
		spec := g.mu.record.Spec
		spec.LockTimeout, spec.Breaker, spec.NoNackThrottle, spec.MaxDeliveries = 12*time.Hour, core.BreakerOff, true, core.UnlimitedDeliveries
		g.mu.rules.Update(spec, time.Now())
		for _, s := range g.mu.shares {
			if err := s.rules.Offer(dispatch.Records{Base: 1, Offsets: make([]uint32, held+1)}, time.Now()); err != nil {
				t.Fatal(err)
			}
			c.shares = append(c.shares, s)
		}
		g.mu.rules.Want(dispatch.Credit{Messages: 1 << 30, Bytes: 1 << 40}, true)
		for n := 0; n < len(g.mu.shares)*held; {
			for _, r := range g.mu.rules.Take(1, dispatch.Credit{Messages: 1 << 30, Bytes: 1 << 40}, time.Now(), nil) {
				n += int(r.Count)
			}
		}
		g.mu.Unlock()
	}
	c.meta = &rowTimes{Store: c.harness.meta, byRow: make(map[string][]time.Time)}
	c.deps.Meta = c.meta
	return c
}

// ack has the next message of each share acked.
func (c *crowd) ack(shares []*share) {
	c.acked++
	for _, s := range shares {
		s.group.mu.Lock()
		s.rules.Ack(c.acked, 1, 1, time.Now(), nil)
		s.group.mu.Unlock()
	}
	for _, g := range c.groupList() {
		g.pump()
	}
}

// saving runs the saver until the returned function is called.
func (c *crowd) saving(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.saver.run(ctx) })
	return func() { cancel(); wg.Wait() }
}

// TestSaver_ManyBusySharesStayWithinTheBudget: 10,000 shares are acked all the time. The hosts of the cluster write no
// more than 1,000 checkpoints in any second together, and each share is saved every ten seconds.
func TestSaver_ManyBusySharesStayWithinTheBudget(t *testing.T) {
	for _, x := range []struct{ hosts, shares, rows int }{
		{1, 10_000, 1000}, // what is promised; the parts of more hosts are shown with a fifth of it, which takes less time
		{2, 1_000, 200},
		{3, 660, 200},
	} {
		hosts, shares := x.hosts, x.shares
		t.Run(fmt.Sprint(hosts, " hosts"), func(t *testing.T) {
			underrace.One(t, hosts == 2)
			synctest.Test(t, func(t *testing.T) {
				var all []time.Time
				var crowds []*crowd
				for i := range hosts {
					c := newCrowd(t, i, hosts, shares)
					c.cfg.CheckpointRows = x.rows
					crowds = append(crowds, c)
				}
				began := time.Now()
				for _, c := range crowds {
					defer c.saving(t)()
				}
				for range 22 * 2 {
					for _, c := range crowds {
						c.ack(c.shares)
					}
					time.Sleep(500 * time.Millisecond)
				}
				synctest.Wait()
				for _, c := range crowds {
					all = append(all, c.meta.times...)
					if n := len(c.meta.byRow); n != shares {
						t.Errorf("%d of %d shares were saved", n, shares)
					}
					if most := c.meta.longest(began, time.Now()); most > 10*time.Second {
						t.Errorf("a share was not saved for %s, want at most 10 s", most)
					}
				}
				slices.SortFunc(all, time.Time.Compare)
				if most := busiest(all); most > x.rows || most < x.rows*9/10 {
					t.Errorf("the hosts wrote %d checkpoints in a second, want at most %d and no less than nine tenths of it", most, x.rows)
				}
			})
		})
	}
}

// TestSaver_DoesNotStretchAtTheBudget: 1,000 shares that are acked all the time are exactly as much as the budget
// allows.
func TestSaver_DoesNotStretchAtTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 1000)
		defer c.saving(t)()
		began := time.Now()
		for range 20 * 2 {
			c.ack(c.shares)
			time.Sleep(500 * time.Millisecond)
		}
		if most := c.meta.longest(began, time.Now()); most > c.cfg.CheckpointEvery {
			t.Errorf("a share was not saved for %s, want at most %s", most, c.cfg.CheckpointEvery)
		}
		synctest.Wait()
		if most := busiest(c.meta.times); most > 1000 {
			t.Errorf("%d checkpoints were written in a second, want at most 1,000", most)
		}
	})
}

// TestSaver_SavesUrgentSharesWhileOthersWait: 8,900 shares are acked all the time, and 100 others a second have a retry
// that waits for its checkpoint. Each of those is saved at once; the rows of all together stay within the budget.
func TestSaver_SavesUrgentSharesWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 9_000)
		defer c.saving(t)()
		busy, failing := c.shares[:8_900], c.shares[8_900:]
		began := time.Now()
		time.Sleep(50 * time.Millisecond) // not with the rounds
		for i := range underrace.Of(11, 22) * 10 {
			if i%5 == 0 {
				c.ack(busy)
			}
			for j := range 10 {
				s := failing[(10*i+j)%len(failing)]
				s.group.mu.Lock()
				err := s.rules.Nack(core.Seq(1+i/10), 1, 0, nil, 0, time.Now())
				s.group.mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
				s.group.pump()
			}
			at := time.Now()
			time.Sleep(100 * time.Millisecond)
			c.meta.mu.Lock()
			for j := range 10 {
				s := failing[(10*i+j)%len(failing)]
				times := c.meta.byRow[metadata.CheckpointPartition(s.group.id, s.extent.ID)]
				if len(times) == 0 || times[len(times)-1].Before(at) {
					t.Errorf("after %s a retry is not saved within a tenth of a second", at.Sub(began))
				}
			}
			c.meta.mu.Unlock()
		}
		synctest.Wait()
		if most := busiest(c.meta.times); most > 1000 {
			t.Errorf("%d checkpoints were written in a second, want at most 1,000", most)
		}
		for _, s := range failing { // not acked all the time
			delete(c.meta.byRow, metadata.CheckpointPartition(s.group.id, s.extent.ID))
		}
		if most := c.meta.longest(began, time.Now()); most > 10*time.Second+500*time.Millisecond { // which the next ack takes
			t.Errorf("a share was not saved for %s, want at most 10 s after its next ack", most)
		}
	})
}

// TestSaver_TriesNoMoreThanTheBudgetWhileWritesFail: 2,000 shares wait for metadata that are away for half a minute.
// When the metadata are back, all are saved within eleven seconds.
func TestSaver_TriesNoMoreThanTheBudgetWhileWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 2_000)
		c.cfg.CheckpointRows = 200
		defer c.saving(t)()
		c.meta.fails = true
		c.ack(c.shares)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if most := busiest(c.meta.times); most > 200 {
			t.Errorf("%d checkpoints were tried in a second, want at most 200", most)
		}
		c.meta.mu.Lock()
		c.meta.fails = false
		c.meta.mu.Unlock()
		time.Sleep(11 * time.Second)
		for _, g := range c.groupList() {
			g.mu.Lock()
			if n := g.unsavedSharesLocked(); n > 0 {
				t.Errorf("%d shares are not saved eleven seconds after the metadata are back", n)
			}
			g.mu.Unlock()
		}
	})
}
