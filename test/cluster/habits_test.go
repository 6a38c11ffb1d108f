package cluster

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/tools/verify"
)

// habit is how the consumers of a group use it. The habit's name selects the promises that are checked.
type habit struct {
	name  string
	own   bool // tools/verify knows no such groups
	jumps bool // it is sent elsewhere, and so need not be given what it had before, or not again
	dies  bool // it is deleted and made again
	spec  func(g *core.GroupSpec, random *rand.Rand)
	use   func(w *taken, random *rand.Rand) error
	do    func(t *trial, g core.GroupSpec, random *rand.Rand) // nil: nothing besides
}

func (h *habit) apart() bool { return h != nil && h.own }

// taken is a delivery and what its consumer asked for.
type taken struct {
	verify.Received
	d        *client.Delivery
	came     time.Time           // to the application
	token    deliverytoken.Token // of groups that jump
	saw      string              // its metadata
	left     string              // the metadata that it comes again with
	until    time.Time           // it may not come again before, of what was sent back
	rejected bool
}

func (w *taken) ack() error {
	w.Settled = verify.Done
	return w.d.Ack()
}

// back nacks; what is away for long, or with other metadata, is parked.
func (w *taken) back(after time.Duration) error {
	w.Settled, w.until = verify.Back, w.At.Add(after)
	if after > 30*time.Second {
		w.Settled = verify.RetryQueued
	}
	return w.d.Nack(client.After(after))
}

func (w *taken) relabel(after time.Duration) error {
	w.Settled, w.until = verify.RetryQueued, w.At.Add(after)
	w.left = fmt.Sprintf("%s by %s at %d", w.Key, w.Consumer, w.At.UnixNano())
	return w.d.Nack(client.After(after), client.Metadata([]byte(w.left)))
}

func (w *taken) reject() error {
	w.Settled, w.rejected = verify.Back, true
	return w.d.Reject("no")
}

func (w *taken) drop() error {
	w.Settled = verify.Dropped
	return nil
}

func millis(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(most.Milliseconds())) * time.Millisecond
}

// breakerOf is a setting of the breaker: off in half of all cases.
func breakerOf(random *rand.Rand) int {
	if random.IntN(2) == 0 {
		return core.BreakerOff
	}
	return core.BreakerAlways
}

// longer is a wait that parks a message.
func longer(random *rand.Rand) time.Duration { return 31*time.Second + millis(random, 30*time.Second) }

var habits = []habit{
	{name: "patient", spec: func(g *core.GroupSpec, random *rand.Rand) { g.Breaker = breakerOf(random) },
		use: func(w *taken, random *rand.Rand) error {
			switch k := random.IntN(100); {
			case k < 8:
				return w.back(longer(random))
			case k < 12:
				return w.relabel(millis(random, 5*time.Second))
			case k < 14:
				return w.relabel(longer(random))
			case k < 18:
				return w.back(millis(random, time.Second))
			case k < 20:
				return w.drop()
			}
			return w.ack()
		}},
	{name: "mortal", own: true, do: (*trial).bury,
		spec: func(g *core.GroupSpec, random *rand.Rand) {
			g.MaxDeliveries, g.Breaker, g.NoNackThrottle = 2+random.IntN(3), core.BreakerOff, true
			if random.IntN(4) == 0 {
				g.Breaker = core.BreakerAlways
			}
		},
		use: func(w *taken, random *rand.Rand) error {
			switch k := random.IntN(100); {
			case k < 6:
				return w.reject()
			case k < 26:
				return w.back(millis(random, time.Second))
			case k < 30:
				return w.back(longer(random))
			case k < 32:
				return w.relabel(0)
			case k < 35:
				return w.drop()
			}
			return w.ack()
		}},
	{name: "once", own: true,
		spec: func(g *core.GroupSpec, _ *rand.Rand) { g.Delivery, g.MaxDeliveries = core.AtMostOnce, 1 },
		use: func(w *taken, random *rand.Rand) error {
			if random.IntN(4) == 0 {
				return w.drop()
			}
			return w.ack()
		}},
	{name: "sought", own: true, jumps: true, do: (*trial).seekAbout,
		use: func(w *taken, random *rand.Rand) error {
			switch k := random.IntN(100); {
			case k < 5:
				return w.back(millis(random, time.Second))
			case k < 7:
				return w.drop()
			}
			return w.ack()
		}},
	{name: "reborn", own: true, jumps: true, dies: true, do: (*trial).bearAgain,
		spec: func(g *core.GroupSpec, random *rand.Rand) { g.Breaker, g.MaxDeliveries = breakerOf(random), 6 },
		use: func(w *taken, random *rand.Rand) error {
			switch k := random.IntN(100); {
			case k < 3:
				return w.reject()
			case k < 8:
				return w.back(longer(random))
			case k < 12:
				return w.relabel(longer(random))
			case k < 18:
				return w.back(millis(random, time.Second))
			case k < 20:
				return w.drop()
			}
			return w.ack()
		}},
	{name: "fresh", own: true,
		spec: func(g *core.GroupSpec, random *rand.Rand) {
			g.SkipOlder = 3*time.Second + millis(random, 6*time.Second)
		},
		use: func(w *taken, random *rand.Rand) error {
			switch k := random.IntN(100); {
			case k < 5:
				return w.back(millis(random, time.Second))
			case k < 8:
				return w.back(longer(random))
			case k < 10:
				return w.drop()
			}
			return w.ack()
		}},
	{name: "switched", do: (*trial).switchAbout,
		use: func(w *taken, random *rand.Rand) error {
			switch k := random.IntN(100); {
			case k < 6:
				return w.back(millis(random, time.Second))
			case k < 8:
				return w.back(longer(random))
			}
			return w.ack()
		}},
}

// newHabits is the load of one queue whose groups have habits; all is chosen by the seed.
func newHabits(s *schedule) *load {
	random := rand.New(rand.NewPCG(s.seed, 8))
	q := core.QueueSpec{Path: "/s/habits", Replicas: 3, MinReplicas: 2}
	if random.IntN(4) == 0 {
		q.Consistency = core.CP
	}
	l := &load{queues: []core.QueueSpec{q}, habits: make(map[string]*habit), later: []time.Duration{0, 10 * time.Second, time.Minute, 4 * time.Minute}[random.IntN(4)]}
	l.pace = []time.Duration{0, 10 * time.Millisecond, 150 * time.Millisecond}[random.IntN(3)]
	l.perish = random.IntN(2) == 0
	l.mu.receipts = make(map[verify.Key]core.Receipt)
	l.mu.got = make(map[string]map[verify.Key]bool)
	l.mu.taken = make(map[string][]*taken)
	l.mu.due = make(map[verify.Key]time.Time)
	l.mu.began = make(map[verify.Key]time.Time)
	l.mu.recalled = make(map[verify.Key]*recall)
	l.mu.expires = make(map[verify.Key]time.Time)
	for _, i := range random.Perm(len(habits))[:2+random.IntN(2)] {
		h := &habits[i]
		g := group(q.Path, h.name)
		if h.spec != nil {
			h.spec(&g, random)
		}
		if l.perish && random.IntN(3) == 0 {
			g.Expired = core.ExpiredDLQ
		}
		l.groups = append(l.groups, g)
		l.habits[g.Name] = h
		l.mu.got[g.Queue+" "+g.Name] = make(map[verify.Key]bool)
		if h.do != nil {
			l.chores = append(l.chores, func(t *trial, random *rand.Rand) { h.do(t, g, random) })
		}
	}
	l.chores = append(l.chores, (*trial).publishInTheCalm)
	if random.IntN(4) == 0 {
		l.chores = append(l.chores, (*trial).shutAbout)
	}
	if random.IntN(8) == 0 {
		l.chores = append(l.chores, (*trial).purgeAll)
	}
	if l.later > time.Second {
		l.chores = append(l.chores, (*trial).takeBack)
	}
	return l
}

// begin notes that a message is about to be published.
func (l *load) begin(key verify.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.began != nil {
		l.mu.began[key] = time.Now()
	}
}

// postpone has some messages delivered later.
func (t *trial) postpone(m *client.Message, key verify.Key, random *rand.Rand) {
	if random.IntN(4) > 0 {
		return
	}
	by := millis(random, []time.Duration{10 * time.Millisecond, time.Second, t.load.later}[random.IntN(3)])
	due := time.Now().Add(by)
	if random.IntN(2) == 0 {
		m.Delay = by
	} else {
		m.DeliverAt = due
	}
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	t.load.mu.due[key] = due
	t.load.mu.postponed = append(t.load.mu.postponed, key)
}

// takeBy is take for a group with a habit.
func (t *trial) takeBy(h *habit, g core.GroupSpec, name string, d *client.Delivery, random *rand.Rand) {
	came := time.Now()
	var token deliverytoken.Token
	if h.jumps {
		var err error
		if token, err = deliverytoken.Open(t.keys, d.Token); err != nil {
			t.t.Errorf("the token of %s for %s: %v", d.Receipt, g.Name, err)
		}
	}
	if t.load.pace > 0 {
		sleep(millis(random, 2*t.load.pace))
	}
	saw := string(d.Metadata())
	w := &taken{d: d, came: came, token: token, saw: saw, left: saw, Received: verify.Received{
		Key: keyOf(g.Queue, d.Body), Group: g.Name, Consumer: name, CRC: crc32.Checksum(d.Body, castagnoli), Receipt: d.Receipt, Attempt: d.Attempt, At: time.Now(),
	}}
	if err := h.use(w, random); err != nil && w.Settled != verify.RetryQueued {
		w.Settled = verify.Dropped
	}
	w.d = nil
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	t.load.mu.taken[g.Name] = append(t.load.mu.taken[g.Name], w)
	if !h.own {
		t.load.mu.history.Received = append(t.load.mu.history.Received, w.Received)
	}
	t.load.mu.got[g.Queue+" "+g.Name][w.Key] = true
}

// skewed notes that some host's clock is off by so much from now on.
func (l *load) skewed(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ahead, l.mu.behind = max(l.mu.ahead, by), max(l.mu.behind, -by)
}
