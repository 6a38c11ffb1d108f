package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller/session"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/lease"
	"github.com/columbamq/columba/metadata/memory"
)

// torn is a store that answers one row with bytes that are no record, and its version as it is.
type torn struct {
	metadata.Store
	key atomic.Pointer[metadata.Key]
}

func (s *torn) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	row, err := s.Store.Get(ctx, t, k, c)
	if key := s.key.Load(); err == nil && key != nil && k == *key {
		row.Value = []byte(`{"owner":"a","run`)
	}
	return row, err
}

// slotOf is the row of the lease that a run holds.
func slotOf(t *testing.T, meta metadata.Store, run core.RunID) metadata.Key {
	t.Helper()
	for slot := range session.Slots {
		key := metadata.LeaseKey(fmt.Sprint("controller/", slot))
		if r, _, err := metadata.Read[lease.Record](t.Context(), meta, metadata.Leases, key, metadata.Serial); err == nil && r.Run == run {
			return key
		}
	}
	t.Fatalf("no lease of run %s", run)
	return metadata.Key{}
}

// spoil writes bytes that are no record into a lease.
func spoil(t *testing.T, meta metadata.Store, key metadata.Key) {
	t.Helper()
	row, err := meta.Get(t.Context(), metadata.Leases, key, metadata.Serial)
	if err == nil {
		err = meta.Update(t.Context(), metadata.Leases, key, row.Version, []byte("\x00\xff{"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSession_DamagedLease: the row of a lease cannot be decoded any more. Its holder takes another lease, and the keys
// of a holder that dies then are another controller's soon. Each log says once a minute at most that there is such a
// row.
func TestSession_DamagedLease(t *testing.T) {
	for _, written := range []bool{true, false} {
		t.Run(fmt.Sprintf("by a change of the row: %t", written), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := &torn{Store: memory.New()}
				w := newWorld(t, meta)
				a, b := w.pair()
				end := w.watch()
				key := slotOf(t, meta.Store, a.run)
				if written {
					spoil(t, meta, key)
				} else {
					meta.key.Store(&key)
				}
				time.Sleep(6 * time.Second)
				within(t, "each has its part again", 14*time.Second, func() bool { return w.settled() && w.of(a) > 0 && w.of(b) > 0 })
				time.Sleep(5 * time.Minute)
				if !w.settled() || w.of(a) == 0 || w.of(b) == 0 {
					t.Errorf("minutes later they have %d and %d of %d keys", w.of(a), w.of(b), len(w.keys))
				}
				a.kill()
				within(t, "the other one takes over", 11*time.Second, func() bool { return w.of(b) == len(w.keys) })
				end()
				if n := strings.Count(b.log.String(), "cannot be decoded"); n < 4 || n > 7 {
					t.Errorf("the log tells %d times of the row in five minutes", n)
				}
				b.end()
			})
		})
	}
}

// TestSession_HolderOfADamagedLeaseDies: its lease cannot be decoded, so nobody sees that it ends. It ends all the
// same.
func TestSession_HolderOfADamagedLeaseDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := memory.New()
		w := newWorld(t, meta)
		a, b := w.pair()
		spoil(t, meta, slotOf(t, meta, a.run))
		a.kill()
		within(t, "the other one takes over", 11*time.Second, func() bool { return w.of(b) == len(w.keys) })
		b.end()
	})
}

// TestSession_StartsBesideDamagedLeases: whichever lease a controller would take first cannot be decoded.
func TestSession_StartsBesideDamagedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := memory.New()
		w := newWorld(t, meta)
		a := w.start("a", 1)
		within(t, "it has all", 10*time.Second, w.settled)
		key := slotOf(t, meta, a.run)
		a.end()
		spoil(t, meta, key)
		a = w.start("a", 1)
		within(t, "it has all in another lease", 10*time.Second, w.settled)
		a.end()
	})
}

// remove takes the row of a lease out of the metadata.
func remove(t *testing.T, meta metadata.Store, key metadata.Key) {
	t.Helper()
	row, err := meta.Get(t.Context(), metadata.Leases, key, metadata.Serial)
	if err == nil {
		err = meta.Delete(t.Context(), metadata.Leases, key, row.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSession_HolderOfALostLeaseDies: the row of its lease is gone, for instance because an operator deleted a damaged
// one, so nobody sees that the lease ends. It ends all the same.
func TestSession_HolderOfALostLeaseDies(t *testing.T) {
	for _, starts := range []bool{true, false} {
		t.Run(fmt.Sprintf("the other one starts again: %t", starts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := memory.New()
				w := newWorld(t, meta)
				a, b := w.pair()
				key := slotOf(t, meta, a.run)
				a.kill()
				w.remove("a")
				remove(t, meta, key)
				if starts {
					time.Sleep(time.Second)
					b.end()
					b = w.start("b", 1)
				}
				within(t, "the other one takes over", 20*time.Second, func() bool { return w.of(b) == len(w.keys) })
				b.end()
			})
		})
	}
}

// TestSession_LostLeaseIsMadeAgain: the row of a holder's lease is deleted. Both controllers have their parts again
// soon.
func TestSession_LostLeaseIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := memory.New()
		w := newWorld(t, meta)
		a, b := w.pair()
		end := w.watch()
		time.Sleep(time.Minute)
		remove(t, meta, slotOf(t, meta, a.run))
		time.Sleep(10 * time.Second)
		within(t, "each has its part", 30*time.Second, func() bool { return w.settled() && w.of(a) > 0 && w.of(b) > 0 })
		end()
		a.end()
		b.end()
	})
}
