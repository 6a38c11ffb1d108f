package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/tools/verify"
)

// purge is when all that a queue had was removed.
type purge struct{ asked, done time.Time }

// purgeAll removes all that the queue has, in the middle of the faults or after them.
func (t *trial) purgeAll(random *rand.Rand) {
	if random.IntN(3) == 0 {
		<-t.calm
		sleep(millis(random, 20*time.Second))
	}
	t.pause(2*time.Second + millis(random, 12*time.Second))
	q, during := t.load.queues[0].Path, &purge{asked: time.Now()}
	t.load.mu.Lock()
	t.load.mu.purge = during
	t.load.mu.Unlock()
	var o client.Operation
	if t.ask("purge "+q, true, func(ctx context.Context) (err error) {
		o, err = t.Client.Admin().PurgeQueue(ctx, q)
		return err
	}) != nil {
		return
	}
	_ = t.ask("wait for the purge of "+q, true, func(ctx context.Context) error {
		ended, err := t.Client.Admin().WaitOperation(ctx, o.ID)
		if err == nil {
			o = ended
		}
		return err
	})
	if o.State != "done" {
		t.t.Errorf("the purge is %+v", o)
	}
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	during.done = time.Now()
}

// purging reports whether messages may be gone.
func (l *load) purging() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.purge != nil
}

// purged reports whether a message may have been removed with all others.
func (l *load) purged(key verify.Key) bool {
	return l.mu.purge != nil && l.mu.began[key].Before(l.mu.purge.done)
}

// judgePurge looks for what was handed out when all that was stored before had been removed. Messages that a group
// parks, or makes dead letters, after that may come.
func (t *trial) judgePurge(ledger map[verify.Key]verify.Published, list []*taken) {
	o := t.load.mu.purge
	if o == nil {
		return
	}
	late := make(map[verify.Key]bool) // given to somebody until shortly before
	for _, w := range list {
		p := ledger[w.Key]
		stored := p.Outcome == verify.Acked && p.At.Before(o.asked)
		if stored && w.came.After(o.done.Add(learned())) && !t.crashedBetween(o.done, w.came) && (w.Receipt == t.load.mu.receipts[w.Key] || !late[w.Key]) {
			t.wrong(w, "it was acknowledged at %s, all was purged from %s to %s", p.At.Format("04:05.000"), o.asked.Format("04:05.000"), o.done.Format("04:05.000"))
		}
		late[w.Key] = late[w.Key] || w.rejected || w.Settled == verify.Dropped || w.At.After(o.asked.Add(-lag))
	}
}

// unseenFor reports whether what was stored then was handed out to nobody for so long, since the queue handed nothing
// out. A message that a consumer gave back unseen is delivered again, with the same attempt. So for a message that is
// old for another reason, the test cannot know whether the group has to skip it.
func (t *trial) unseenFor(stored time.Time, age time.Duration) bool {
	for _, s := range t.load.mu.shut {
		if !s.status.CanConsume() && stored.After(s.from.Add(learned())) && stored.Add(age).Before(s.to) && !t.hinderedBetween(s.from, s.to) {
			return true
		}
	}
	return false
}

// judgeFresh looks for what was handed out for the first time when the group was to skip it, and for what was not
// although it was fresh, or had been handed out before.
func (t *trial) judgeFresh(g core.GroupSpec, ledger map[verify.Key]verify.Published, list []*taken) {
	last, done := make(map[verify.Key]*taken), make(map[verify.Key]bool)
	for _, w := range list {
		p, stored := ledger[w.Key], t.load.mu.due[w.Key]
		if p.At.After(stored) {
			stored = p.At
		}
		first := last[w.Key] == nil && w.Attempt == 1 && p.Outcome == verify.Acked
		if first && w.Receipt == t.load.mu.receipts[w.Key] && t.unseenFor(stored, g.SkipOlder+t.load.skew()+lag) {
			t.wrong(w, "it was stored at %s, the group skips what is older than %s", stored.Format("04:05.000"), g.SkipOlder)
		}
		last[w.Key], done[w.Key] = w, done[w.Key] || w.Settled == verify.Done
	}
	skipped := 0
	for key, p := range ledger {
		w := last[key]
		switch {
		case p.Outcome != verify.Acked || t.load.excused(g, key) || t.buried(g, key):
		case w == nil && key.Publisher == "calm" && t.load.pace <= 10*time.Millisecond && t.load.skew() < time.Second && len(t.load.mu.shut) == 0:
			t.t.Errorf("fresh: %s, acknowledged at %s, never came", key, p.At.Format("04:05.000"))
		case w == nil:
			skipped++
		case !done[key] && (w.Attempt > 1 || !t.crashedBetween(w.At, w.At)):
			t.wrong(w, "it was given back, and did not come again")
		}
	}
	t.say("fresh: %d of %d were skipped", skipped, len(ledger))
}
