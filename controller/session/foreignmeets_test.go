package session_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata/memory"
)

// seconds counts in how many of the next seconds a condition holds.
func seconds(n int, is func() bool) (count int) {
	for range n {
		if time.Sleep(time.Second); is() {
			count++
		}
	}
	return count
}

// TestForeign_HearsOfItsColleagueLater: b starts on the side of a cut where only x is, which is on a copy and was there
// a little before. After the cut x gives way to a, which is older than both. So b does not stand back for x any more,
// and x does not go on when a crashes.
func TestForeign_HearsOfItsColleagueLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		time.Sleep(5 * time.Minute)
		w.hide("a", "b", true)
		w.hide("a", "x", true)
		x := w.startOn(memory.New(), "x", 1, nil)
		time.Sleep(2 * time.Minute)
		b := w.start("b", 1)
		within(t, "b stands back", time.Minute, func() bool { return b.StandsBack() != nil })
		w.hide("a", "b", false)
		w.hide("a", "x", false)
		within(t, "a and b go on", time.Minute, func() bool { return w.of(x) == 0 && w.of(a) > 0 && w.of(b) > 0 && b.StandsBack() == nil })
		a.kill()
		w.remove("a")
		within(t, "b has all", 20*time.Second, func() bool { return w.of(b) == len(w.keys) })
		if n := seconds(120, func() bool { return w.of(x) > 0 || w.of(b) < len(w.keys) }); n > 0 {
			t.Errorf("after a has crashed x, on the copy, is responsible or b is not, for %d s: %v", n, b.StandsBack())
		}
		b.end()
		x.end()
	})
}

// TestForeign_RestartBeforeItGivesWay: x, on a copy, hears of a some seconds late, takes a lease, and knows that it has
// to give way soon. The controller of the cluster is restarted just then. It goes on all the same, and x gives way.
func TestForeign_RestartBeforeItGivesWay(t *testing.T) {
	for _, after := range []time.Duration{0, 4, 9, 14} {
		t.Run((after * time.Second).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.New())
				a := w.start("a", 1)
				time.Sleep(5 * time.Minute)
				w.hide("a", "x", true)
				x := w.startOn(memory.New(), "x", 1, nil)
				time.Sleep(3 * time.Second)
				w.hide("a", "x", false)
				within(t, "x knows that a has other metadata", 30*time.Second, func() bool { return errors(x) > 0 })
				time.Sleep(after * time.Second)
				a.end()
				w.remove("a")
				time.Sleep(2 * time.Second)
				a = w.start("a", 1)
				time.Sleep(time.Minute)
				if n := seconds(120, func() bool { return w.of(a) < len(w.keys) || w.of(x) > 0 }); n > 0 {
					t.Errorf("for %d of 120 s after its restart a is not responsible, or x is: %v", n, a.StandsBack())
				}
				a.end()
				x.end()
			})
		})
	}
}

// TestForeign_OtherOneEndsFirst: an operator ends the process on the copy as soon as a log says so. The controller of
// the cluster, which came later, does not give way to a process that has ended.
func TestForeign_OtherOneEndsFirst(t *testing.T) {
	for _, left := range []bool{true, false} {
		name := "killed"
		if left {
			name = "stopped in an orderly way"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.New())
				w.hide("a", "x", true)
				x := w.startOn(memory.New(), "x", 1, nil)
				time.Sleep(2 * time.Minute)
				a := w.start("a", 1)
				within(t, "both have all", 20*time.Second, func() bool { return w.of(a) > 0 && w.of(x) > 0 })
				w.hide("a", "x", false)
				within(t, "a log says so", 40*time.Second, func() bool { return errors(a) > 0 })
				time.Sleep(4 * time.Second)
				if left {
					x.end()
				} else {
					goOn := x.way.pause() // it answers nobody, and gossip has it for a while
					defer func() {
						goOn()
						x.end()
					}()
					time.Sleep(8 * time.Second)
				}
				w.remove("x")
				if n := seconds(120, func() bool { return w.of(a) < len(w.keys) }); n > 0 {
					t.Errorf("the cluster has no controller for %d s:\n%s", n, a.log.String())
				}
				a.end()
			})
		})
	}
}

// TestForeign_SaysThatItGivesWaySoon: a holder that is about to give way says so, and not that it goes on.
func TestForeign_SaysThatItGivesWaySoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		w.hide("a", "x", true)
		a := w.start("a", 1)
		time.Sleep(10 * time.Minute)
		x := w.startOn(memory.New(), "x", 1, nil)
		within(t, "both have all", 20*time.Second, func() bool { return w.of(a) > 0 && w.of(x) > 0 })
		w.hide("a", "x", false)
		within(t, "the later one gives way", 40*time.Second, func() bool { return w.of(x) == 0 })
		time.Sleep(10 * time.Second)
		for of, want := range map[*controller]map[string]int{
			a: {"this one goes on, because": 1, "this one gives way in a moment": 0, "this one stands back": 0},
			x: {"this one goes on, because": 0, "this one gives way in a moment": 1, "this one stands back": 1},
		} {
			for s, n := range want {
				if strings.Count(of.log.String(), s) != n {
					t.Errorf("%s does not say %d times %q:\n%s", of.id, n, s, of.log.String())
				}
			}
		}
		a.end()
		x.end()
	})
}

// TestForeign_FlappingMembership: both hold leases, and the later one lacks the other for three seconds in every nine.
// It gives way all the same.
func TestForeign_FlappingMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		time.Sleep(5 * time.Minute)
		w.hide("a", "x", true)
		x := w.startOn(memory.New(), "x", 1, nil)
		time.Sleep(10 * time.Second)
		for i := range 200 {
			w.hide("a", "x", i%9 < 3)
			if time.Sleep(time.Second); i > 60 && w.of(x) > 0 || w.of(a) == 0 {
				t.Fatalf("after %d s they have %d and %d keys", i, w.of(a), w.of(x))
			}
		}
		a.end()
		x.end()
	})
}

// TestForeign_PausedWhileItStandsBack: x stands back, and its process is paused for eleven minutes. The membership
// lacks the others for some seconds when it goes on. It takes no lease.
func TestForeign_PausedWhileItStandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		time.Sleep(5 * time.Minute)
		x := w.startOn(memory.New(), "x", 1, nil)
		within(t, "it knows of the other one", 20*time.Second, func() bool { return errors(x) > 0 })
		goOn := x.way.pause()
		time.Sleep(11 * time.Minute)
		w.hide("a", "x", true)
		goOn()
		time.Sleep(5 * time.Second)
		w.hide("a", "x", false)
		if n := seconds(60, func() bool { return w.of(x) > 0 }); n > 0 {
			t.Errorf("it is responsible in the other metadata for %d s", n)
		}
		a.end()
		x.end()
	})
}

// TestForeign_FirstInquiry: a controller refuses calls until its first questions have ended. They end at once if it is
// alone or the others answer, and half a second after the start if one does not.
func TestForeign_FirstInquiry(t *testing.T) {
	for name, c := range map[string]struct {
		others, cut bool
		after       time.Duration
	}{"alone": {}, "beside one that answers": {others: true}, "beside one that does not": {others: true, cut: true, after: 500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.New())
				if c.others {
					a := w.start("a", 1)
					defer a.end()
					time.Sleep(time.Minute)
				}
				w.mu.Lock()
				w.mu.cut[[2]core.HostID{"b", "a"}] = c.cut
				w.mu.Unlock()
				b := w.start("b", 1)
				defer b.end()
				if c.after > 0 {
					time.Sleep(c.after - time.Millisecond)
					synctest.Wait()
					if err := b.StandsBack(); core.CodeOf(err) != core.CodeUnavailable {
						t.Errorf("it has not asked yet, and acts: %v", err)
					}
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				if err := b.StandsBack(); err != nil {
					t.Errorf("after %s it does not act: %v", c.after, err)
				}
			})
		})
	}
}

// TestForeign_RefusesWhileItWaits: a controller on a copy takes no lease from its start on, because it waits until it
// knows what metadata the others use. It refuses calls meanwhile, too.
func TestForeign_RefusesWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		time.Sleep(time.Minute)
		x := w.startOn(memory.New(), "x", 1, nil)
		for range 300 {
			if err := x.StandsBack(); core.CodeOf(err) != core.CodeUnavailable {
				t.Fatalf("it acts: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		a.end()
		x.end()
	})
}
