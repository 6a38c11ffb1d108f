package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/outputhost/cancels"
	"github.com/columbamq/columba/tools/verify"
)

// recall is a message that was published for later and taken back, and what came of it.
type recall struct {
	key             verify.Key
	at              core.Receipt
	asked, answered time.Time
	outcomes        map[string]client.CancelOutcome // by group; nil: there was no answer
}

// calledOff reports whether no group that is made later gets it either.
func (r *recall) calledOff() bool {
	for _, o := range r.outcomes {
		if o == client.OutcomeCancelled {
			return true
		}
	}
	return r.outcomes != nil && len(r.outcomes) == 0
}

// of is what came of it for a group that was made then; "": it is not known.
func (r *recall) of(group string, b birth) client.CancelOutcome {
	switch {
	case b.asked.After(r.answered) && r.calledOff():
		return client.OutcomeCancelled
	case b.asked.After(r.answered) || b.made.Before(r.asked) && (b.ended.IsZero() || b.ended.After(r.answered)):
		return r.outcomes[group]
	}
	return ""
}

// decided is for how long a message that is about to be due counts as one that may have been handed out, when somebody
// does not answer.
const decided = 5 * time.Second

// takeBack cancels messages that wait, some of them twice; whatever fails meanwhile, it asks until it is told.
func (t *trial) takeBack(random *rand.Rand) {
	for !closed(t.calm) {
		t.pause(time.Second + millis(random, 4*time.Second))
		t.cancelSome(random)
	}
	sleep(2*slack + millis(random, 7*time.Second)) // while something is published in the calm
	t.cancelSome(random)
	for _, r := range t.load.cancelled() {
		if r.calledOff() && random.IntN(4) == 0 {
			t.cancelAgain(r)
		}
	}
}

// cancelled are the messages of which it is known what came of cancelling them, in the order of their publishing.
func (l *load) cancelled() (out []*recall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range l.mu.postponed {
		if r := l.mu.recalled[key]; r != nil && r.outcomes != nil {
			out = append(out, r)
		}
	}
	return out
}

// cancelSome cancels up to five messages that are not due yet, or have been for less than a second.
func (t *trial) cancelSome(random *rand.Rand) {
	var keys []verify.Key
	var receipts []core.Receipt
	most := 1 + random.IntN(5)
	t.load.mu.Lock()
	for _, key := range t.load.mu.postponed {
		at, stored := t.load.mu.receipts[key]
		if stored && time.Since(t.load.mu.due[key]) < time.Second && t.load.mu.recalled[key] == nil && random.IntN(2) == 0 && len(keys) < most {
			keys, receipts = append(keys, key), append(receipts, at)
			t.load.mu.recalled[key] = &recall{key: key, at: at, asked: time.Now()}
		}
	}
	t.load.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	for i, c := range t.cancelUntilTold(receipts) {
		switch {
		case core.CodeOf(c.Err) == core.CodeBadArgument: // it never waited
			continue
		case core.CodeOf(c.Err) == core.CodeNotFound && t.load.purging():
			continue
		case c.Err != nil:
			t.t.Errorf("%s cannot be cancelled: %v", keys[i], c.Err)
			continue
		}
		outcomes := make(map[string]client.CancelOutcome)
		for _, g := range c.Groups {
			outcomes[g.Group] = g.Outcome
		}
		t.say("cancelled %s of %s: %v", keys[i], receipts[i], outcomes)
		t.load.mu.Lock()
		r := t.load.mu.recalled[keys[i]]
		r.answered, r.outcomes = time.Now(), outcomes
		t.load.mu.Unlock()
	}
}

// cancelUntilTold cancels until it is known what came of each.
func (t *trial) cancelUntilTold(receipts []core.Receipt) []client.Cancelled {
	out, todo := make([]client.Cancelled, len(receipts)), make([]int, len(receipts))
	for i := range todo {
		todo[i] = i
	}
	_ = t.ask(fmt.Sprintf("cancel %v", receipts), true, func(ctx context.Context) error {
		var at []core.Receipt
		for _, i := range todo {
			at = append(at, receipts[i])
		}
		results, err := t.Client.Cancel(ctx, "", at...)
		var left []int
		for n, i := range todo {
			if n >= len(results) {
				left = append(left, i)
				continue
			}
			out[i] = results[n]
			if c := core.CodeOf(results[n].Err); c != "" && c != core.CodeBadArgument && c != core.CodeNotFound {
				left, err = append(left, i), results[n].Err
			}
		}
		todo = left
		return err
	})
	for _, i := range todo {
		if out[i].Err == nil {
			out[i].Err = core.Errorf(core.CodeUnavailable, "there was no answer")
		}
	}
	return out
}

// cancelAgain cancels what was cancelled before, and is told the same.
func (t *trial) cancelAgain(r *recall) {
	c := t.cancelUntilTold([]core.Receipt{r.at})[0]
	if c.Err != nil && !(core.CodeOf(c.Err) == core.CodeNotFound && t.load.purging()) {
		t.t.Errorf("%s of %s cannot be cancelled again: %v", r.key, r.at, c.Err)
	}
	for _, g := range c.Groups {
		if before := r.outcomes[g.Group]; before != "" && (before == client.OutcomeCancelled) != (g.Outcome == client.OutcomeCancelled) && !t.load.habits[g.Group].dies {
			t.t.Errorf("%s of %s is %s for %s, it was %s before", r.key, r.at, g.Outcome, g.Group, before)
		}
	}
}

// judgeRecalls looks for messages that a group was given although it was said that they are cancelled for it, and for
// some that were not cancelled although nobody can have been given them.
func (t *trial) judgeRecalls(g core.GroupSpec, ledger map[verify.Key]verify.Published, list []*taken) {
	byKey := t.load.mu.recalled
	for _, r := range byKey {
		outcome := r.of(g.Name, t.load.lastBirth(g))
		margin := t.load.skew() + cancels.Tolerance
		if r.asked.Before(t.quiet) {
			margin += decided
		}
		switch due := t.load.mu.due[r.key]; {
		case outcome == "" || outcome == client.OutcomeCancelled:
		case t.load.habits[g.Name].jumps: // what it left behind counts as delivered
		case due.Add(-margin).After(r.answered) && !t.load.purged(r.key):
			t.t.Errorf("%s of %s is %s for %s at %s, it is due at %s", r.key, r.at, outcome, g.Name, r.answered.Format("04:05.000"), due.Format("04:05.000"))
		}
	}
	for _, w := range list {
		if r := byKey[w.Key]; r != nil && t.calledFor(r, w.Receipt, ledger[w.Key]) && r.of(g.Name, t.load.birthOf(w)) == client.OutcomeCancelled && !t.early(r, w) {
			t.wrong(w, "it was cancelled at %s", r.answered.Format("04:05.000"))
		}
	}
	for _, l := range t.dead[g.Name] {
		if r := byKey[keyOf(g.Queue, l.Message.Body)]; r != nil && r.of(g.Name, t.load.lastBirth(g)) == client.OutcomeCancelled && t.calledFor(r, l.Origin, ledger[r.key]) {
			t.t.Errorf("%s: %s is a dead letter, it was cancelled at %s", g.Name, r.key, r.answered.Format("04:05.000"))
		}
	}
}

// calledFor reports whether it is what was cancelled, and not a second copy that was stored when an answer was lost.
func (t *trial) calledFor(r *recall, at core.Receipt, p verify.Published) bool {
	return at == r.at || !t.crashedBetween(p.At.Add(-30*time.Second), p.At)
}

// early reports whether the group may have forgotten that it was handed out, as its host died or it was sent back: by a
// store's clock it was due, and by those of others it was not.
func (t *trial) early(r *recall, w *taken) bool {
	forgets := t.load.habits[w.Group].jumps || t.crashedBetween(w.At, r.answered)
	return w.At.Before(t.load.mu.due[r.key]) && w.At.Before(r.answered) && forgets
}
