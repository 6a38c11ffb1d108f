package cluster

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/tools/verify"
)

// judgeHabits judges what tools/verify does not know of.
func (t *trial) judgeHabits() {
	if len(t.load.habits) == 0 {
		return
	}
	ledger := make(map[verify.Key]verify.Published)
	for _, p := range t.load.mu.history.Published {
		ledger[p.Key] = p
	}
	t.judgeShut()
	for _, g := range t.load.groups {
		list := t.load.mu.taken[g.Name]
		t.judgeTimes(list)
		t.judgePurge(ledger, list)
		t.judgeRecalls(g, ledger, list)
		t.judgeShelfLives(g, list)
		if t.load.habits[g.Name].own {
			t.judgeLedger(ledger, list)
		}
		switch g.Name {
		case "patient":
			t.judgeParked(g, list)
		case "mortal":
			t.judgeMortal(g, ledger, list)
		case "once":
			t.judgeOnce(g, ledger, list)
		case "reborn":
			t.judgeReborn(g, ledger, list)
		case "fresh":
			t.judgeFresh(g, ledger, list)
		case "sought":
			t.judgeSought(g, ledger, list)
		case "switched":
			t.judgeSwitched(list)
		}
	}
}

func (t *trial) wrong(w *taken, format string, args ...any) {
	t.t.Helper()
	t.t.Errorf("%s: %s of %s, attempt %d, taken at %s: "+format, append([]any{w.Group, w.Key, w.Receipt, w.Attempt, w.At.Format("04:05.000")}, args...)...)
	for _, o := range t.load.mu.taken[w.Group] {
		if o.Key == w.Key {
			t.t.Logf("\t%s %s: %s attempt %d, %s until %s, metadata %q left %q", o.At.Format("04:05.000"), o.Consumer, o.Receipt, o.Attempt, o.Settled, o.until.Format("04:05.000"), o.saw, o.left)
		}
	}
}

// skew is how far apart the clocks of two hosts were at most.
func (l *load) skew() time.Duration { return l.mu.ahead + l.mu.behind + time.Millisecond } // times are whole milliseconds

// crashedBetween reports whether a fault may explain something.
func (t *trial) crashedBetween(from, to time.Time) bool {
	for _, c := range t.load.mu.history.Crashes {
		if c.From.Before(to.Add(slack)) && c.To.After(from.Add(-slack)) {
			return true
		}
	}
	return false
}

// judgeLedger looks for what was not published like that.
func (t *trial) judgeLedger(ledger map[verify.Key]verify.Published, list []*taken) {
	for _, w := range list {
		switch p, known := ledger[w.Key]; {
		case !known:
			t.wrong(w, "it is in no ledger")
		case p.CRC != w.CRC:
			t.wrong(w, "its payload is another one")
		case p.Outcome == verify.Failed:
			t.wrong(w, "its publish had failed")
		}
	}
}

// judgeTimes looks for what came before its time.
func (t *trial) judgeTimes(list []*taken) {
	for _, w := range list {
		if due, later := t.load.mu.due[w.Key]; later && w.At.Before(due.Add(-t.load.skew())) {
			t.wrong(w, "it is due at %s", due.Format("04:05.000"))
		}
	}
}

// judgeParked looks for messages that come back from the retry queue too early, or with other metadata than they were
// sent there with. The message of a receipt never changes, so its metadata do not either.
func (t *trial) judgeParked(g core.GroupSpec, list []*taken) {
	retry := make(map[core.ExtentID]bool)
	for e, err := range t.Client.Admin().ListExtents(t.t.Context(), core.RetryPath(g.Queue, g.Name)) {
		if core.CodeOf(err) == core.CodeNotFound { // nothing was parked
			break
		}
		t.must(err)
		retry[e.Extent] = true
	}
	first := make(map[core.Receipt]*taken)
	parked := make(map[verify.Key][]*taken)
	for _, w := range list {
		before := first[w.Receipt]
		switch {
		case before != nil:
			if before.saw != w.saw {
				t.wrong(w, "metadata %q, were %q", w.saw, before.saw)
			}
		case retry[w.Receipt.Extent] && !t.sentBack(w, parked[w.Key]):
			t.wrong(w, "nobody sent it back like that, with metadata %q", w.saw)
		case !retry[w.Receipt.Extent] && w.saw != "" && t.load.mu.purge == nil: // else it may have been in one that is purged
			t.wrong(w, "it was published without metadata %q", w.saw)
		}
		if before == nil {
			first[w.Receipt] = w
		}
		if w.Settled == verify.RetryQueued {
			parked[w.Key] = append(parked[w.Key], w)
		}
	}
	t.say("patient: %d places in %d extents of the retry queue", len(first), len(retry))
}

// sentBack reports whether a message that comes from the retry queue was sent there, for not longer.
func (t *trial) sentBack(w *taken, parked []*taken) bool {
	for _, p := range parked {
		if p.left == w.saw && p.Attempt < w.Attempt && !w.At.Before(p.until.Add(-t.load.skew())) {
			return true
		}
	}
	return false
}

// notCounted is how many attempts of a message do not count at most, since a crash or a lost lease interrupted them.
const notCounted = 3

// judgeMortal accounts for every message of a group with few attempts, whose dead letters are merged and purged: it is
// done, or a dead letter, or was one and purged.
func (t *trial) judgeMortal(g core.GroupSpec, ledger map[verify.Key]verify.Published, list []*taken) {
	ends := make(map[core.Receipt]*taken) // rejected, or done
	first, last := make(map[core.Receipt]*taken), make(map[core.Receipt]*taken)
	parked := make(map[verify.Key]*taken) // the first attempt of what was sent to the retry queue, where the attempts are counted on
	done, mayDie := make(map[verify.Key]bool), make(map[verify.Key]bool)
	for _, w := range list {
		if first[w.Receipt] == nil {
			first[w.Receipt] = w
			if from := parked[w.Key]; from != nil && w.Attempt > 1 {
				first[w.Receipt] = from
			}
		}
		if w.Settled == verify.RetryQueued {
			parked[w.Key] = first[w.Receipt]
		}
		more := w.Attempt - g.MaxDeliveries
		began := first[w.Receipt].At
		if first[w.Receipt].Attempt > 1 { // earlier ones were handed out and did not arrive
			began = ledger[w.Key].At
		}
		if more > 0 && g.Breaker == core.BreakerOff && (more > notCounted || !t.crashedBetween(began, w.At)) {
			t.wrong(w, "of %d attempts", g.MaxDeliveries)
		}
		if end := ends[w.Receipt]; end != nil && !t.crashedBetween(end.At, w.At) {
			t.wrong(w, "it had its end at %s, without a fault since then", end.At.Format("04:05.000"))
		}
		if before := last[w.Receipt]; before != nil && w.Attempt <= before.Attempt && !t.crashedBetween(before.At, w.At) {
			t.wrong(w, "after attempt %d at %s", before.Attempt, before.At.Format("04:05.000"))
		}
		last[w.Receipt] = w
		if w.rejected || w.Settled == verify.Done {
			ends[w.Receipt] = w
		}
		done[w.Key] = done[w.Key] || w.Settled == verify.Done
		mayDie[w.Key] = mayDie[w.Key] || w.rejected || w.Attempt >= g.MaxDeliveries
	}
	_, dead := t.fullDepth(g)
	letters := make(map[verify.Key]bool)
	found := t.asReceived(g, t.dead[g.Name])
	for _, l := range found {
		letters[l.Key] = true
		if p, known := ledger[l.Key]; !known || p.CRC != l.CRC {
			t.t.Errorf("%s: dead letter %s is not as it was published", g.Name, l.Key)
		}
	}
	if len(found) != int(dead) {
		t.t.Errorf("%s counts %d dead letters, %d were found", g.Name, dead, len(found))
	}
	purged := t.purged()
	var missing []verify.Key
	for key, p := range ledger {
		if p.Outcome != verify.Acked || done[key] || letters[key] || t.load.excused(g, key) {
			continue
		}
		missing = append(missing, key)
		if !mayDie[key] && !t.crashedBetween(p.At, time.Now()) { // nobody saw all of its attempts
			t.t.Errorf("%s: %s is gone without a reason", g.Name, key)
		}
	}
	if len(missing) > purged {
		t.t.Errorf("%s: %d messages are neither done nor dead letters, %d were purged: %v", g.Name, len(missing), purged, missing[:min(5, len(missing))])
		for _, w := range list {
			if w.Key == missing[0] {
				t.wrong(w, "it is missing")
				break
			}
		}
	}
	t.say("%s: %d dead letters, %d gone, %d purged", g.Name, len(found), len(missing), purged)
}

// purged is how many dead letters operations have removed.
func (t *trial) purged() (n int) {
	all, err := t.Client.Admin().ListOperations(t.t.Context(), true)
	t.must(err)
	for _, o := range all {
		t.say("%+v", o)
		if o.State == "failed" {
			t.t.Errorf("an operation has failed: %+v", o)
		}
		if o.Kind == "purge" && o.Group != "" {
			n += int(o.Done)
		}
	}
	return n
}

// judgeOnce looks for what came twice, and for what is lost without having been handed out when something failed.
func (t *trial) judgeOnce(g core.GroupSpec, ledger map[verify.Key]verify.Published, list []*taken) {
	seen, got := make(map[core.Receipt]bool), make(map[verify.Key]bool)
	for _, w := range list {
		if seen[w.Receipt] || w.Attempt != 1 {
			t.wrong(w, "it may come once")
		}
		seen[w.Receipt], got[w.Key] = true, true
	}
	lost := 0
	for key, p := range ledger {
		if p.Outcome != verify.Acked || got[key] || t.load.excused(g, key) || t.buried(g, key) {
			continue
		}
		lost++
		since := p.At
		if due := t.load.mu.due[key].Add(-t.load.skew()); due.After(since) {
			since = due
		}
		if !t.crashedBetween(since, time.Now()) {
			t.t.Errorf("once: %s, which could be handed out from %s on, never was", key, since.Format("04:05.000"))
		}
	}
	t.say("once: %d of %d are lost", lost, len(ledger))
}

// judgeSought looks for what did not come since the last seek.
func (t *trial) judgeSought(g core.GroupSpec, ledger map[verify.Key]verify.Published, list []*taken) {
	var last sought
	if n := len(t.load.mu.sought); n > 0 {
		last = t.load.mu.sought[n-1]
	}
	got := make(map[verify.Key]bool)
	for _, w := range list {
		got[w.Key] = got[w.Key] || !w.At.Before(last.asked)
	}
	t.judgeLeft(g, last, ledger, list)
	for key, p := range ledger {
		began := t.load.mu.began[key]
		switch {
		case p.Outcome != verify.Acked || got[key] || t.load.excused(g, key):
			continue
		case last.to.Mode == core.StartTime && began.Add(-t.load.skew()).Before(last.to.At), last.to.Mode == core.StartLatest && began.Before(last.answered):
			continue // it may be stored before that
		}
		t.t.Errorf("sought: %s, acknowledged at %s as %s, did not come after the seek of %s to %s %s", key, p.At.Format("04:05.000"), t.load.mu.receipts[key],
			last.asked.Format("04:05.000"), last.to.Mode, last.to.At.Format("04:05.000"))
	}
}

// judgeLeft looks for what came although the last seek left it behind.
func (t *trial) judgeLeft(g core.GroupSpec, last sought, ledger map[verify.Key]verify.Published, list []*taken) {
	path, err := t.Client.Admin().GetQueue(t.t.Context(), g.Queue)
	t.must(err)
	r, _, err := metadata.Read[metadata.GroupRecord](t.t.Context(), t.Meta, metadata.Groups, metadata.GroupKey(path.ID, g.Name), metadata.Serial)
	t.must(err)
	for _, w := range list {
		p := ledger[w.Key]
		_, postponed := t.load.mu.due[w.Key] // what it had not been given of that is no past
		if w.token.Epoch != r.Epoch || p.Outcome != verify.Acked || w.Receipt != t.load.mu.receipts[w.Key] {
			continue
		}
		if last.to.Mode == core.StartTime && !postponed && p.At.Add(t.load.skew()).Before(last.to.At) || last.to.Mode == core.StartLatest && p.At.Before(last.asked) {
			t.wrong(w, "acknowledged at %s, it came after the seek of %s to %s %s", p.At.Format("04:05.000"), last.asked.Format("04:05.000"), last.to.Mode, last.to.At.Format("04:05.000"))
		}
	}
}

// judgeSwitched looks for what came while the group was disabled and its hosts had had the time to learn it.
func (t *trial) judgeSwitched(list []*taken) {
	for _, w := range list {
		for _, o := range t.load.mu.off {
			if from := o.from.Add(10 * time.Second); w.At.After(from) && w.At.Before(o.to) && !t.crashedBetween(o.from, w.At) {
				t.wrong(w, "the group was disabled at %s", o.from.Format("04:05.000"))
			}
		}
	}
}
