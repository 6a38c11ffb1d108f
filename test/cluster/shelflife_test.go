package cluster

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/tools/verify"
)

// forLong is when what never expires in a trial does.
const forLong = 24 * time.Hour

// perish has some messages expire: about when they could be handed out, later, or not as long as the trial lasts.
func (t *trial) perish(m *client.Message, key verify.Key, random *rand.Rand) {
	if random.IntN(3) > 0 {
		return
	}
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	from := time.Now()
	if due, later := t.load.mu.due[key]; later && due.After(from) {
		from = due
	}
	life := []time.Duration{3 * time.Second, 30 * time.Second, forLong}[random.IntN(3)]
	if life < forLong {
		life = millis(random, life)
	}
	m.ExpireAt = from.Add(life + 2*time.Millisecond).Truncate(time.Millisecond) // after the millisecond in which it is due
	t.load.mu.expires[key] = m.ExpireAt
}

// expired reports whether by some host's clock a message has expired.
func (l *load) expired(key verify.Key) bool {
	at, perishes := l.mu.expires[key]
	return perishes && at.Before(time.Now().Add(l.skew()))
}

// excused reports whether a group need not get a message that was acknowledged, nor have it as a dead letter: it was
// cancelled, or purged, or has expired.
func (l *load) excused(g core.GroupSpec, key verify.Key) bool {
	if r := l.mu.recalled[key]; r != nil {
		if o := r.of(g.Name, l.lastBirth(g)); o == client.OutcomeCancelled || o == "" && r.calledOff() { // the latter: while the group was being made
			return true
		}
	}
	return l.purged(key) || l.expired(key) && (g.Expired != core.ExpiredDLQ || l.habits[g.Name].jumps)
}

// judgeShelfLives looks for messages that were handed out after they had expired, and for dead letters that say so and
// have not.
func (t *trial) judgeShelfLives(g core.GroupSpec, list []*taken) {
	for _, w := range list {
		end, perishes := t.load.mu.expires[w.Key]
		if !perishes || g.Expired == core.ExpiredDLQ && w.Receipt != t.load.mu.receipts[w.Key] { // one that was merged expires no more
			continue
		}
		if late := t.held(end.Add(t.load.skew() + lag)); w.came.After(late) {
			t.wrong(w, "it came at %s, it had expired at %s", w.came.Format("04:05.000"), end.Format("04:05.000"))
		}
	}
	for _, l := range t.dead[g.Name] {
		if l.Reason != "expired" {
			continue
		}
		key := keyOf(g.Queue, l.Message.Body)
		switch end, perishes := t.load.mu.expires[key]; {
		case g.Expired != core.ExpiredDLQ:
			t.t.Errorf("%s: %s is a dead letter since it expired, the group drops such", g.Name, key)
		case !perishes || l.DeadSince.Before(end.Add(-t.load.skew())):
			t.t.Errorf("%s: %s is a dead letter since %s, it expires at %s", g.Name, key, l.DeadSince.Format("04:05.000"), end.Format("04:05.000"))
		case !l.Message.ExpireAt.IsZero():
			t.t.Errorf("%s: dead letter %s still expires", g.Name, key)
		}
	}
}

// buried reports whether a message is among the dead letters of a group.
func (t *trial) buried(g core.GroupSpec, key verify.Key) bool {
	return slices.ContainsFunc(t.dead[g.Name], func(l client.DeadLetter) bool { return keyOf(g.Queue, l.Message.Body) == key })
}

// lag is how long a message is on its way from a host to the application at most when nothing fails: a consumer gives
// back what waited for a quarter of the lock timeout.
const lag = 2 * time.Second

// held is when what was on its way at a time has come: faults one after another may hold it up.
func (t *trial) held(at time.Time) time.Time {
	crashes := slices.Clone(t.load.mu.history.Crashes)
	slices.SortFunc(crashes, func(a, b verify.Crash) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	for _, c := range crashes {
		if c.Split && !c.From.After(at) && c.To.Add(lag).After(at) {
			at = c.To.Add(lag)
		}
	}
	return at
}
