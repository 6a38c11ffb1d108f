package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/tools/verify"
)

// shut is a time in which a queue had a status, as far as everybody was told.
type shut struct {
	from, to time.Time
	status   core.Status
}

// learned is within what time everybody who is connected knows of a change when nothing fails. Reads at One may be old
// by the delay of replicas of the metadata.
func learned() time.Duration {
	if *staleFlag > 0 {
		return 5*time.Second + divergence(0).Delay
	}
	return 5 * time.Second
}

// shutAbout has the queue take no messages, or hand none out, for a while, and opens it again.
func (t *trial) shutAbout(random *rand.Rand) {
	q := t.load.queues[0].Path
	update := func(s core.Status) {
		_ = t.ask(fmt.Sprintf("%s becomes %s", q, s), true, func(ctx context.Context) error {
			_, err := t.Client.Admin().UpdateQueue(ctx, core.QueueSpec{Path: q, Status: s}, "status")
			return err
		})
	}
	for range 1 + random.IntN(2) {
		if random.IntN(2) == 0 {
			<-t.calm
			sleep(slack + millis(random, slack))
		}
		t.pause(time.Second + millis(random, 12*time.Second))
		s := shut{status: []core.Status{core.StatusDisabled, core.StatusSendOnly, core.StatusReceiveOnly}[random.IntN(3)]}
		update(s.status)
		s.from = time.Now()
		if t.pause(2*time.Second + millis(random, 10*time.Second)); closed(t.calm) {
			sleep(learned() + millis(random, 5*time.Second))
		}
		s.to = time.Now()
		update(core.StatusEnabled)
		t.load.mu.Lock()
		t.load.mu.shut = append(t.load.mu.shut, s)
		t.load.mu.Unlock()
	}
}

// judgeShut looks for what was stored, or handed out, while the queue did not do that and its hosts had had the time to
// learn it.
func (t *trial) judgeShut() {
	if *neverFlag > 0 { // who reads at One may never learn it
		return
	}
	for _, s := range t.load.mu.shut {
		during := func(at time.Time) bool {
			return at.After(s.from.Add(learned())) && at.Before(s.to) && !t.hinderedBetween(s.from, at)
		}
		if !s.status.CanPublish() {
			for _, p := range t.load.mu.history.Published {
				if p.Outcome == verify.Acked && during(p.At) {
					t.t.Errorf("%s was stored at %s, the queue was %s at %s", p.Key, p.At.Format("04:05.000"), s.status, s.from.Format("04:05.000"))
				}
			}
		}
		if s.status.CanConsume() {
			continue
		}
		for _, g := range t.load.groups {
			for _, w := range t.load.mu.taken[g.Name] {
				if during(w.came) {
					t.wrong(w, "the queue was %s at %s", s.status, s.from.Format("04:05.000"))
				}
			}
		}
	}
}

// hinderedBetween reports whether some host may not have learned what it should have: what became of a consumer is no
// reason.
func (t *trial) hinderedBetween(from, to time.Time) bool {
	return slices.ContainsFunc(t.load.mu.history.Crashes, func(c verify.Crash) bool {
		return c.Split && c.From.Before(to.Add(slack)) && c.To.After(from.Add(-slack))
	})
}

// birth is one of the groups that were made under a name.
type birth struct {
	id          core.GroupID
	asked, made time.Time
	ended       time.Time // when it was to be deleted; zero: it is there
	deleted     time.Time
	start       core.StartMode
}

// bearAgain deletes a group in the middle of the faults, or after them, and makes another one under its name.
func (t *trial) bearAgain(g core.GroupSpec, random *rand.Rand) {
	admin := t.Client.Admin()
	for range 1 + random.IntN(2) {
		if random.IntN(4) == 0 {
			<-t.calm
			sleep(millis(random, 20*time.Second))
		}
		t.pause(time.Second + millis(random, 12*time.Second))
		ended := time.Now()
		if t.ask("delete "+g.Name, true, func(ctx context.Context) error {
			err := admin.DeleteGroup(ctx, g.Queue, g.Name)
			if core.CodeOf(err) == core.CodeNotFound { // the answer was lost
				return nil
			}
			return err
		}) != nil {
			return
		}
		deleted := time.Now()
		sleep(millis(random, []time.Duration{100 * time.Millisecond, 8 * time.Second}[random.IntN(2)]))
		g.Start.Mode = []core.StartMode{core.StartEarliest, core.StartLatest}[random.IntN(2)]
		b := birth{asked: time.Now(), start: g.Start.Mode}
		if t.ask(fmt.Sprintf("make %s again, from the %s", g.Name, b.start), true, func(ctx context.Context) error {
			made, err := admin.CreateGroup(ctx, g)
			if core.CodeOf(err) == core.CodeExists {
				made, err = admin.GetGroup(ctx, g.Queue, g.Name)
			}
			b.id = made.ID
			return err
		}) != nil {
			return
		}
		b.made = time.Now()
		t.load.mu.Lock()
		before := &t.load.mu.births[len(t.load.mu.births)-1]
		before.ended, before.deleted = ended, deleted
		t.load.mu.births = append(t.load.mu.births, b)
		t.load.mu.Unlock()
	}
}

// judgeReborn judges the last of the groups that were made under a name as a group of its own, and looks for what the
// others left it.
func (t *trial) judgeReborn(g core.GroupSpec, ledger map[verify.Key]verify.Published, list []*taken) {
	births := t.load.mu.births
	last := births[len(births)-1]
	byID := make(map[core.GroupID]birth)
	for _, b := range births {
		byID[b.id] = b
	}
	h := verify.History{Published: t.load.mu.history.Published, Crashes: t.load.mu.history.Crashes}
	labels := make(map[string]core.GroupID) // who left which metadata
	for _, w := range list {
		b, known := byID[w.token.Group]
		switch p := ledger[w.Key]; {
		case !known:
			t.wrong(w, "of a group that nobody made: %s", w.token.Group)
		case b.start == core.StartLatest && p.Outcome == verify.Acked && p.At.Before(b.asked) && w.Receipt == t.load.mu.receipts[w.Key]:
			t.wrong(w, "the group that begins at the latest was made at %s, it was stored at %s", b.asked.Format("04:05.000"), p.At.Format("04:05.000"))
		case w.saw != "" && labels[w.saw] != b.id:
			t.wrong(w, "metadata %q of another group", w.saw)
		}
		if b.id != last.id && w.came.After(b.deleted.Add(learned())) && !t.hinderedBetween(b.deleted, w.came) {
			t.wrong(w, "its group was deleted at %s", b.deleted.Format("04:05.000"))
		}
		if w.left != w.saw {
			labels[w.left] = b.id
		}
		if b.id == last.id {
			h.Received = append(h.Received, w.Received)
		}
	}
	for _, l := range t.dead[g.Name] {
		if l.DeadSince.Before(last.asked.Add(-t.load.skew())) {
			t.t.Errorf("%s: %s is dead since %s, the group was made at %s", g.Name, keyOf(g.Queue, l.Message.Body), l.DeadSince.Format("04:05.000"), last.asked.Format("04:05.000"))
		}
	}
	h.Received = append(h.Received, t.asReceived(g, t.dead[g.Name])...)
	undone, dead := t.fullDepth(g)
	h.Groups = []verify.Left{{Queue: g.Queue, Group: g.Name, Undone: undone, Dead: dead}}
	report := t.check(&h)
	for _, f := range report.Findings {
		if began, wasPublished := t.load.mu.began[f.Key]; f.Kind != verify.Lost || last.start == core.StartEarliest || wasPublished && began.After(last.made) {
			t.t.Errorf("%s, made at %s: %s, published at %s\n%s", g.Name, last.made.Format("04:05.000"), f, began.Format("04:05.000"), t.lives([]verify.Finding{f}))
		}
	}
	t.say("%s: %d births, the last from the %s: %v", g.Name, len(births), last.start, report.Counts)
}

// lastBirth is of the group that there is in the end; of one that was made once, it was before everything.
func (l *load) lastBirth(g core.GroupSpec) birth {
	if h := l.habits[g.Name]; h == nil || !h.dies {
		return birth{}
	}
	return l.mu.births[len(l.mu.births)-1]
}

// birthOf is of the group that a delivery was for.
func (l *load) birthOf(w *taken) birth {
	for _, b := range l.mu.births {
		if b.id == w.token.Group {
			return b
		}
	}
	return birth{}
}
