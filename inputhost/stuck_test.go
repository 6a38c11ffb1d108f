package inputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// age looks for a time, at an interval. Of some stores the oldest batch gets older all the while, beginning at zero;
// the others are well.
func (w *watch) age(d, every time.Duration, set func(age time.Duration) map[core.HostID]lag) {
	for age := every; age <= d; age += every {
		w.now = w.now.Add(every)
		lags := map[core.HostID]lag{"well": {oldest: time.Millisecond, slowest: 2 * time.Millisecond}}
		for id, l := range set(age) {
			if w.evicted[id] == nil { // else its extents have ended
				lags[id] = l
			}
		}
		if id, _ := w.look(w.now, lags); id != "" {
			w.evicted[id] = append(w.evicted[id], w.now.Sub(w.began))
		}
	}
}

func overtaken(age time.Duration) lag { return lag{oldest: age, behind: age, overtaken: age} }

func TestStores_StuckOneIsEvicted(t *testing.T) {
	w := newWatch()
	w.pass(10*time.Second, map[core.HostID][2]int{"a": {3, 5}})
	w.began = w.now
	w.age(4*time.Second, tickEvery, func(age time.Duration) map[core.HostID]lag {
		return map[core.HostID]lag{"a": overtaken(age)}
	})
	w.want(t, map[core.HostID]int{"a": 1})
	if at := w.evicted["a"][0]; at < testStoreLimits.stuck || at > testStoreLimits.stuck+tickEvery {
		t.Errorf("evicted after %s, want %s", at, testStoreLimits.stuck)
	}
}

// Cases that do not prove that it is this store: then the deadline of 5 s decides.
func TestStores_NotStuck(t *testing.T) {
	almost := testStoreLimits.deadline - tickEvery
	for name, c := range map[string]struct {
		every time.Duration
		lags  func(age time.Duration) map[core.HostID]lag
	}{
		"no other replica has it": {tickEvery, func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{"a": {oldest: age, silent: age}}
		}},
		"another has just that batch, and the store is alive": {tickEvery, func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{"a": {oldest: age, behind: age, silent: 10 * time.Millisecond}}
		}},
		"it acknowledges in another extent": {tickEvery, func(age time.Duration) map[core.HostID]lag {
			l := overtaken(age)
			l.slowest = 400 * time.Millisecond
			return map[core.HostID]lag{"a": l}
		}},
		"it has acknowledged something now and then": {tickEvery, func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{"a": overtaken(age % (1300 * time.Millisecond))}
		}},
		"two at once": {tickEvery, func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{"a": overtaken(age), "b": overtaken(age)}
		}},
		"another is slow": {tickEvery, func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{"a": overtaken(age), "b": {oldest: 600 * time.Millisecond, slowest: 700 * time.Millisecond}}
		}},
		"this host looks too late": {2 * tickEvery, func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{"a": overtaken(age)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatch()
			w.age(time.Second, tickEvery, func(time.Duration) map[core.HostID]lag { return nil })
			w.age(almost, c.every, c.lags)
			w.want(t, nil)
		})
	}
}

// A store that is silent as well needs no newer batch: with one message under way there is none.
func TestStores_SilentAndBehind(t *testing.T) {
	w := newWatch()
	w.age(time.Second, tickEvery, func(time.Duration) map[core.HostID]lag { return nil })
	w.age(3*time.Second, tickEvery, func(age time.Duration) map[core.HostID]lag {
		return map[core.HostID]lag{"a": {oldest: age, behind: age, silent: age}}
	})
	w.want(t, map[core.HostID]int{"a": 1})
}

// A pause of this host says nothing of the time before it either.
func TestStores_StuckAfterAPause(t *testing.T) {
	w := newWatch()
	w.age(time.Second, tickEvery, func(time.Duration) map[core.HostID]lag { return nil })
	grow := func(from time.Duration) func(time.Duration) map[core.HostID]lag {
		return func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{"a": overtaken(from + age)}
		}
	}
	w.age(time.Second, tickEvery, grow(0))
	w.now = w.now.Add(600 * time.Millisecond) // less than what counts as a standstill
	w.age(testStoreLimits.stuck-tickEvery, tickEvery, grow(1600*time.Millisecond))
	w.want(t, nil)
	w.age(2*tickEvery, tickEvery, grow(1600*time.Millisecond+testStoreLimits.stuck))
	w.want(t, map[core.HostID]int{"a": 1})
}

// When one after another is stuck it is hardly the stores: after the first, the others have until the deadline.
func TestStores_StuckOnesDoNotCascade(t *testing.T) {
	w := newWatch()
	w.age(time.Second, tickEvery, func(time.Duration) map[core.HostID]lag { return nil })
	for _, id := range []core.HostID{"a", "b", "c"} {
		w.age(3*time.Second, tickEvery, func(age time.Duration) map[core.HostID]lag {
			return map[core.HostID]lag{id: overtaken(age)}
		})
	}
	w.want(t, map[core.HostID]int{"a": 1})
}

// A store whose disk hangs, or whose process was stopped, costs publishers little more than the time after which it
// counts as stuck.
func TestHost_StuckStore(t *testing.T) {
	for name, c := range map[string]struct {
		stores int
		stick  func(s *store) (goOn func())
		pace   time.Duration // between messages; 0: one after another
	}{
		"disk": {4, func(s *store) func() {
			s.set(func() { s.delay = time.Hour })
			return s.kill
		}, 20 * time.Millisecond},
		"disk, none to spare": {3, func(s *store) func() {
			s.set(func() { s.delay = time.Hour })
			return s.kill
		}, 20 * time.Millisecond},
		"process":                        {4, (*store).stop, 20 * time.Millisecond},
		"process, one message at a time": {3, (*store).stop, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.stores, nil, func(r *harness) {
				p := r.publisher("p", path)
				p.load(2*time.Second, 20*time.Millisecond)
				goOn := c.stick(r.stores[1])
				if c.pace > 0 {
					p.load(4*time.Second, c.pace)
				} else {
					for end := time.Now().Add(4 * time.Second); time.Now().Before(end); sleep(10 * time.Millisecond) {
						p.send()
						p.flush()
					}
				}
				p.flush()
				r.all(p.n)
				r.gapUpTo(DefaultConfig().StuckStore + 3*tickEvery)
				for _, e := range r.open(path) {
					if e.Replicas[0] == "s1" || e.Replicas[1] == "s1" {
						t.Errorf("extent %s is open on the stuck store", e.ID)
					}
				}
				goOn()
			})
		})
	}
}

// Most stores stand still for less than the deadline: nothing is sealed for it.
func TestHost_SeveralStuckAreLetBe(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.load(2*time.Second, 10*time.Millisecond)
		var goOn []func()
		for _, s := range r.stores[1:] {
			goOn = append(goOn, s.stop())
		}
		p.load(4*time.Second, 10*time.Millisecond)
		for _, f := range goOn {
			f()
		}
		p.flush()
		r.all(p.n)
		if n := r.ctl.sealed(); n != 0 {
			t.Errorf("%d extents were sealed while two of three stores were stuck for less than the deadline", n)
		}
	})
}
