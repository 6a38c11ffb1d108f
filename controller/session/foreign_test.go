package session_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller/session"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func host(id string) core.HostID { return core.HostID(id) }

// remove has the membership lack controllers that have ended.
func (w *world) remove(ids ...core.HostID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		delete(w.mu.all, id)
	}
}

func errors(c *controller) int { return strings.Count(c.log.String(), "level=ERROR") }

// copyLeases has other metadata begin as a copy of the rows of leases.
func copyLeases(t *testing.T, from metadata.Store) metadata.Store {
	t.Helper()
	to := metadata.Store(memory.New())
	for slot := range session.Slots {
		key := metadata.LeaseKey(fmt.Sprint("controller/", slot))
		if row, err := from.Get(t.Context(), metadata.Leases, key, metadata.Serial); err == nil {
			if err := to.Insert(t.Context(), metadata.Leases, key, row.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// TestForeign_NewcomerTakesNothing: a controller starts whose metadata are a copy of those of the others, with or
// without the rows of their leases. It takes no lease, and says why, also while the others are away for a restart. It
// goes on by itself ten minutes after they have left.
func TestForeign_NewcomerTakesNothing(t *testing.T) {
	for _, leases := range []bool{false, true} {
		t.Run(fmt.Sprintf("with their leases: %t", leases), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := memory.New()
				w := newWorld(t, meta)
				a, b := w.pair()
				time.Sleep(2 * time.Minute)
				other := metadata.Store(memory.New())
				if leases {
					other = copyLeases(t, meta)
					time.Sleep(5 * time.Second)
				}
				end := w.watch()
				x := w.startOn(other, "x", 1, nil)
				never := func(long time.Duration) {
					t.Helper()
					for began := time.Now(); time.Since(began) < long; time.Sleep(100 * time.Millisecond) {
						if x.Holds() {
							t.Fatal("it takes a lease in the other metadata")
						}
					}
				}
				never(3 * time.Minute)
				if x.StandsBack() == nil || errors(x) < 2 || errors(x) > 4 || !strings.Contains(x.log.String(), "host=x other=a") {
					t.Errorf("%v, and its log says %d times that it stands back:\n%s", x.StandsBack(), errors(x), x.log.String())
				}
				if !w.settled() || w.of(a) == 0 || w.of(b) == 0 || a.StandsBack() != nil {
					t.Error("the others do not go on")
				}
				a.end()
				b.kill()
				w.remove("a", "b")
				never(2 * time.Minute)
				a, b = w.start("a", 1), w.start("b", 1)
				never(time.Minute)
				if w.of(a) == 0 || w.of(b) == 0 {
					t.Error("the others do not go on after a restart")
				}
				a.end()
				b.end()
				w.remove("a", "b")
				never(9*time.Minute + 50*time.Second)
				within(t, "it goes on", 20*time.Second, func() bool { return w.of(x) == len(w.keys) })
				end()
				x.end()
			})
		})
	}
}

// TestForeign_LaterOnesGiveWay: controllers of two clusters with copies of the same metadata meet when both hold
// leases. All of the cluster that has held leases for a shorter time give way, also to one that started later than they
// did. If the difference is small all do.
func TestForeign_LaterOnesGiveWay(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead time.Duration
		goes  bool
	}{{"much later", 10 * time.Minute, true}, {"at the same time", 20 * time.Second, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.New())
				for _, id := range []string{"a1", "a2"} {
					for _, other := range []string{"x1", "x2"} {
						w.hide(host(id), host(other), true)
					}
				}
				a1 := w.start("a1", 1)
				time.Sleep(c.ahead)
				other := metadata.Store(memory.New())
				x1, x2 := w.startOn(other, "x1", 1, nil), w.startOn(other, "x2", 1, nil)
				time.Sleep(15 * time.Second)
				a2 := w.start("a2", 1)
				within(t, "each has its part", 20*time.Second, func() bool { return w.of(a1) > 0 && w.of(a2) > 0 && w.of(x1) > 0 && w.of(x2) > 0 })
				for _, id := range []string{"a1", "a2"} {
					for _, other := range []string{"x1", "x2"} {
						w.hide(host(id), host(other), false)
					}
				}
				within(t, "the later ones give way", 30*time.Second, func() bool { return w.of(x1) == 0 && w.of(x2) == 0 })
				time.Sleep(5 * time.Second)
				for range 600 {
					time.Sleep(time.Second)
					if c.goes != (w.of(a1) > 0 && w.of(a2) > 0 && w.of(a1)+w.of(a2) == len(w.keys)) || !c.goes && w.of(a1)+w.of(a2) > 0 || w.of(x1)+w.of(x2) > 0 {
						t.Fatalf("they have %d, %d, %d and %d keys", w.of(a1), w.of(a2), w.of(x1), w.of(x2))
					}
				}
				for _, x := range []*controller{a1, a2, x1, x2} {
					if errors(x) == 0 {
						t.Errorf("the log of %s does not say so", x.id)
					}
					x.end()
				}
			})
		})
	}
}

// TestForeign_SameMetadata: nothing that happens to controllers with the same metadata makes one of them stand back, or
// say that another one has other metadata.
func TestForeign_SameMetadata(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, w *world, a, b *controller){
		"one without a lease, beside all that there can be": func(t *testing.T, w *world, _, _ *controller) {
			for i := range session.Slots - 1 {
				c := w.start(host(fmt.Sprint("more", i)), 1)
				defer c.end()
			}
			time.Sleep(20 * time.Second)
		},
		"one that loses its lease and takes it again": func(t *testing.T, w *world, a, _ *controller) {
			for range 5 {
				goOn := a.way.pauseReads()
				time.Sleep(7 * time.Second)
				goOn()
				time.Sleep(9 * time.Second)
			}
		},
		"reads that wait": func(t *testing.T, w *world, a, _ *controller) {
			for range 20 {
				goOn := a.way.pauseReads()
				time.Sleep(1900 * time.Millisecond)
				goOn()
				time.Sleep(100 * time.Millisecond)
			}
		},
		"an outage of the metadata": func(t *testing.T, w *world, _, _ *controller) {
			was := *w.meta.Load()
			var refuses metadata.Store = readOnly{was}
			w.meta.Store(&refuses)
			time.Sleep(time.Minute)
			w.meta.Store(&was)
			time.Sleep(time.Minute)
		},
		"a cut": func(t *testing.T, w *world, _, _ *controller) {
			w.between("a", "b", true)
			time.Sleep(time.Minute)
			w.between("a", "b", false)
			time.Sleep(time.Minute)
		},
		"a paused process": func(t *testing.T, w *world, a, _ *controller) {
			for _, long := range []time.Duration{time.Second, 5 * time.Second, 7 * time.Second, 30 * time.Second} {
				goOn := a.way.pause()
				time.Sleep(long)
				goOn()
				time.Sleep(20 * time.Second)
			}
		},
		"an earlier version": func(t *testing.T, w *world, _, b *controller) {
			w.mu.Lock()
			w.mu.old["b"] = true
			w.mu.Unlock()
			c := w.start("c", 1)
			defer c.end()
			time.Sleep(time.Minute)
		},
		"restarts": func(t *testing.T, w *world, _, _ *controller) {
			for i := range 10 {
				c := w.start("c", 1)
				time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				c.kill()
				w.remove("c")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.New())
				a, b := w.start("a", 1), w.start("b", 1.02)
				within(t, "each has its part", 10*time.Second, func() bool { return w.settled() && w.of(a) > 0 && w.of(b) > 0 })
				end := w.watch()
				do(t, w, a, b)
				within(t, "each has its part again", 2*time.Minute, func() bool { return w.settled() && w.of(a) > 0 && w.of(b) > 0 })
				end()
				for _, c := range []*controller{a, b} {
					if errors(c) > 0 {
						t.Errorf("%s says:\n%s", c.id, c.log.String())
					}
					c.end()
				}
			})
		})
	}
}

// TestForeign_UnreadableLeases: the rows of some leases cannot be decoded here, as those of a newer version, and their
// holder goes on to renew them. Such rows are no proof of other metadata.
func TestForeign_UnreadableLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := memory.New()
		w := newWorld(t, meta)
		a := w.start("a", 1)
		within(t, "it has all", 10*time.Second, w.settled)
		time.Sleep(2 * time.Minute)
		key := slotOf(t, meta, a.run)
		unreadable := &torn{Store: meta}
		unreadable.key.Store(&key)
		b := w.startOn(unreadable, "b", 1, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.StandsBack() != nil || strings.Contains(b.log.String(), "different metadata") {
			t.Errorf("it says that the metadata are others:\n%s", b.log.String())
		}
		a.end()
		b.end()
	})
}

// TestForeign_CorrectedMetadata: a controller on a copy that was there first is started again on the metadata of the
// one that stood back for it, with this version or an earlier one. That one goes on as soon as it sees so.
func TestForeign_CorrectedMetadata(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("an earlier version: %t", old), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.New())
				x := w.startOn(memory.New(), "x", 1, nil)
				time.Sleep(2 * time.Minute)
				a := w.start("a", 1)
				within(t, "it stands back", 20*time.Second, func() bool { return errors(a) > 0 })
				x.end()
				w.mu.Lock()
				w.mu.old["x"] = old
				w.mu.Unlock()
				x = w.start("x", 1)
				within(t, "each has its part", 20*time.Second, func() bool { return w.settled() && w.of(a) > 0 && w.of(x) > 0 })
				if err := a.StandsBack(); err != nil {
					t.Error(err)
				}
				a.end()
				x.end()
			})
		})
	}
}

// TestForeign_EstablishedAfterALapse: the metadata of the cluster were away, and a controller on a copy took a lease
// meanwhile. The one that was there before goes on when its metadata are back.
func TestForeign_EstablishedAfterALapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := metadata.Store(memory.New())
		w := newWorld(t, rows)
		a := w.start("a", 1)
		within(t, "it has all", 10*time.Second, w.settled)
		time.Sleep(5 * time.Minute)
		refuses := metadata.Store(readOnly{rows})
		w.meta.Store(&refuses)
		within(t, "its lease ends", 20*time.Second, func() bool { return !a.Holds() })
		x := w.startOn(memory.New(), "x", 1, nil)
		within(t, "the other one has all", 20*time.Second, func() bool { return w.of(x) == len(w.keys) })
		w.meta.Store(&rows)
		within(t, "the one of the cluster has all again", 30*time.Second, func() bool { return w.of(x) == 0 && w.of(a) == len(w.keys) })
		time.Sleep(time.Minute)
		if w.of(x) > 0 || w.of(a) != len(w.keys) || errors(a) == 0 || errors(x) == 0 {
			t.Errorf("they have %d and %d keys:\n%s\n%s", w.of(a), w.of(x), a.log.String(), x.log.String())
		}
		a.end()
		x.end()
	})
}
