package outputhost

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/growth"
	"github.com/columbamq/columba/outputhost/inspect"
	"github.com/columbamq/columba/outputhost/transfer"
)

// group is one consumer group's work on this host. Its mutex owns the delivery state; nothing is sent, read or waited
// for under it. After every event the goroutine that brought it calls pump, which does what the event made possible.
type group struct {
	h         *Host
	id        core.GroupID
	queue     core.QueueID
	queuePath string
	name      string
	savedAt   atomic.Int64 // unix ns, when a checkpoint was taken last
	outbox    transfer.Outbox
	under     atomic.Pointer[leaseSet] // of the lists of the queue, see Host.putUnder; nil: there is no list, and no share
	slow      atomic.Bool              // its claims and done rows took all of the time that they had, see saver.slow
	users     atomic.Int32             // who found the group and has not released it; rises under the host's mutex only
	mu        struct {
		sync.Mutex
		record      metadata.GroupRecord
		recordAt    metadata.Reading // of its row
		source      core.Status      // of the queue; "": not read yet
		sourceAt    metadata.Reading // of the queue's record
		paused      error            // why nothing is delivered, by the status of the group or of its queue; nil: it is
		rules       *dispatch.Group
		counter     *retryCounter // nil: no controller has told of many retries
		shares      map[core.ExtentID]*share
		given       map[core.ExtentID]*share // to other hosts, lately; nil like names and pulls until there is one
		merged      time.Duration            // when checkpoints of other owners were looked at, see elapsed
		elsewhere   uint64                   // settlements by token, by another owner or a selection, and of messages that another consumer holds, or none
		dropped     uint64                   // shares that were taken out of the group
		acks        growth.Meter             // of what the rules have counted as acked
		counted     inspect.CountedGroup     // what controllers were told of the group
		gap         uint64                   // lowest place of a chain that is this host's and not resumed; 0: none
		ordered     []*share                 // of shares, oldest extent first; nil when they changed
		consumers   []*consumer              // by session
		pulls       *pulls                   // nil until there was one
		pulled      time.Duration            // when the last one ended, see elapsed
		unread      int32                    // shares that wait for a reader
		lingering   bool                     // readers are open for the pull that may follow the last one
		pumping     bool
		again       bool // an event came while pumping
		closed      bool
		reorder     bool                          // shares of the chain are to be put in order, see orderLocked
		room        bool                          // there may be room for more readers
		wanted      bool                          // somebody waited for messages at the last pump
		opening     bool                          // other hosts hear that the breaker is open here, see openings
		lateChanged bool                          // a share that was given away is to be saved
		need        urgency                       // how soon a share of unsaved is to be saved
		told        urgency                       // what of that the saver was told
		opened      time.Duration                 // since when the breaker is open, as it was logged last, see elapsed; 0: it is closed
		looked      time.Duration                 // when the ends of shares that are not read were looked up, see elapsed
		names       map[dispatch.SessionID]string // of consumers, past ones too, for transfers
		runs        []dispatch.Run                // scratch

		touched  *share        // the next pump looks at them: a list by nextTouched
		unsaved  *share        // they are to be saved sooner than in their turn, or their turn has come: a list by nextUnsaved
		deadline time.Duration // that was set last, see elapsed; 0: none
		credits  *credits      // nil until there is a consumer
	}
}

// groupOf finds the group of that name and id, whatever its id if none is given, or reads it from the metadata. The
// caller releases it.
func (h *Host) groupOf(ctx context.Context, queue core.QueueID, name string, id core.GroupID) (*group, error) {
	is := func(r metadata.GroupRecord) bool {
		return r.Started && r.Spec.Status != core.StatusDeleted && (id.IsZero() || r.ID == id)
	}
	record, at, err := h.readGroup(ctx, queue, name, is)
	if err != nil {
		return nil, err
	}
	if !is(record) {
		return nil, core.Errorf(core.CodeNotFound, "group %s of queue %s is not there", name, record.Spec.Queue)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.mu.groups[record.ID]; g != nil {
		g.users.Add(1)
		return g, nil
	}
	if h.mu.stopped {
		return nil, core.Errorf(core.CodeDraining, "output host is stopping")
	}
	g := &group{h: h, id: record.ID, queue: queue, queuePath: record.Spec.Queue, name: name}
	g.mu.record, g.mu.recordAt = record, at
	g.mu.paused = g.statusLocked()
	g.mu.rules = dispatch.NewGroup(record.Spec)
	if now := h.deps.Now(); now.Sub(record.ID.Time()) < madeNow { // nothing of it failed on any host
		g.mu.rules.Retries(0, len(h.deps.Members.Hosts("outputhost")), now)
	}
	if opening := h.openings.of(record.ID); opening > 0 {
		g.mu.rules.Elsewhere(opening, h.deps.Now())
	}
	g.mu.acks.Note(0, h.deps.Now()) // the rate of what is acknowledged before the first tick counts from here
	g.mu.shares = make(map[core.ExtentID]*share)
	g.under.Store(h.underLocked(g, h.leasesOfLocked(queue)))
	h.mu.groups[record.ID] = g
	h.mu.byQueue[queue] = append(h.mu.byQueue[queue], g)
	g.users.Add(1)
	return g, nil
}

// madeNow is for how long no host can have delivered messages of a group so that its retries matter. Without a count a
// host would take itself for one of many until the controller counts retries next, which it does every five seconds.
const madeNow = 3 * time.Second

// readGroup reads the row of a group. One copy of the metadata may lack the row, or have it as it was before: if the
// row is not the one that is looked for, it is read again at Quorum.
func (h *Host) readGroup(ctx context.Context, queue core.QueueID, name string, is func(metadata.GroupRecord) bool) (record metadata.GroupRecord, at metadata.Reading, err error) {
	at.Run = membership.MetadataRun(h.deps.Members) // before the row is read: see metadata.Reading
	for _, c := range oneThenQuorum {
		record, at.Version, err = metadata.Read[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, metadata.GroupKey(queue, name), c)
		if err == nil && is(record) || err != nil && core.CodeOf(err) != core.CodeNotFound {
			break
		}
	}
	if err != nil {
		err = core.Errorf(core.CodeOf(err), "look up group %s: %w", name, err)
	}
	record.Spec = record.Spec.Interned()
	return record, at, err
}

// oneThenQuorum is how a row is read: what one copy of the metadata lacks may be in others.
var oneThenQuorum = []metadata.Consistency{metadata.One, metadata.Quorum}

// measure notes how much the group has acknowledged so far.
func (g *group) measure(now time.Time) {
	g.mu.Lock()
	g.mu.acks.Note(g.mu.rules.Counters().Acked, now)
	g.mu.Unlock()
}

// ackRateLocked is how many messages are acked per second.
func (g *group) ackRateLocked(now time.Time) float64 {
	return g.mu.acks.PerSecond(g.mu.rules.Counters().Acked, now)
}

// release lets go of a group that was found.
func (g *group) release() { g.users.Add(-1) }

// unload forgets a group without shares, consumers and users; it is read again when it is needed.
func (h *Host) unload(g *group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.shares) == 0 && len(g.mu.given) == 0 && len(g.mu.consumers) == 0 && g.users.Load() == 0 && !g.mu.pumping && !g.outbox.Busy() && h.mu.groups[g.id] == g {
		delete(h.mu.groups, g.id)
		if left := slices.DeleteFunc(h.mu.byQueue[g.queue], func(o *group) bool { return o == g }); len(left) > 0 {
			h.mu.byQueue[g.queue] = left
		} else {
			delete(h.mu.byQueue, g.queue)
		}
	}
}

// groupsOfLocked are the loaded groups of a queue.
func (h *Host) groupsOfLocked(queue core.QueueID) []*group { return slices.Clone(h.mu.byQueue[queue]) }

// lookUp finds a group by its path and name.
func (h *Host) lookUp(ctx context.Context, path, name string) (*group, error) {
	path, err := core.ParseAnyQueuePath(path)
	if err != nil {
		return nil, err
	}
	if name, err = core.ParseGroupName(name); err != nil {
		return nil, err
	}
	id, err := h.queueID(ctx, path)
	if err != nil {
		return nil, err
	}
	g, err := h.groupOf(ctx, id, name, core.GroupID{})
	if core.CodeOf(err) != core.CodeNotFound {
		return g, err
	}
	now, err := h.named(ctx, path, metadata.Quorum) // one copy may still have the queue that had the path before
	if err != nil {
		return nil, err
	}
	if now != id && !now.IsZero() {
		if g, err = h.groupOf(ctx, now, name, core.GroupID{}); core.CodeOf(err) != core.CodeNotFound {
			return g, err
		}
	}
	return nil, core.Errorf(core.CodeNotFound, "group %s of queue %s is not there; create it with: columba create group %s %s", name, path, path, name)
}

// queueID is the queue of a path.
func (h *Host) queueID(ctx context.Context, path string) (core.QueueID, error) {
	for _, c := range oneThenQuorum {
		if id, err := h.named(ctx, path, c); err != nil || !id.IsZero() {
			return id, err
		}
	}
	return core.QueueID{}, core.Errorf(core.CodeNotFound, "queue %s is not there; create it with: columba create queue %s", path, path)
}

// named reads which queue has a path; zero: none has.
func (h *Host) named(ctx context.Context, path string, c metadata.Consistency) (core.QueueID, error) {
	r, _, err := metadata.Read[metadata.NameRecord](ctx, h.deps.Meta, metadata.Names, metadata.NameKey(path), c)
	if core.CodeOf(err) == core.CodeNotFound {
		return core.QueueID{}, nil
	}
	return r.Queue, err
}

// close stops all readers.
func (g *group) close() {
	g.mu.Lock()
	g.mu.closed = true
	readers := g.readersLocked()
	g.mu.Unlock()
	stopAll(readers)
}

// urgency is when what changed is to be saved: each share by its own, a group as soon as one of its shares.
type urgency uint8

const (
	saveNone  urgency = iota // nothing changed
	saveSoon                 // in its turn, which comes with the next round while the budget of rows allows that: see saveLine
	saveRound                // with the next round, whatever the budget
	saveEarly                // not before Config.CheckpointBusy has passed since its last, if the budget allows that; else like saveSoon
	saveBusy                 // not before Config.CheckpointBusy has passed since its last, whatever the budget
	saveNow                  // or, while too many bytes are written so soon, as if it was busy
	saveTurn                 // its turn has come
)

// presses reports whether the budget of rows does not count: something waits for the checkpoint, or follows from it.
func (u urgency) presses() bool { return u == saveRound || u == saveBusy || u == saveNow }

func (g *group) readersLocked() []*reader {
	var out []*reader
	for _, s := range g.mu.shares {
		if s.reader != nil {
			out = append(out, s.reader)
		}
	}
	return out
}

// idleReadersLocked are the readers to be stopped because nobody waits for messages of this group; nil while somebody
// does.
func (g *group) idleReadersLocked() []*reader {
	if g.wantedLocked() {
		return nil
	}
	return g.readersLocked()
}

// wantedLocked reports whether somebody waits for messages of this group.
func (g *group) wantedLocked() bool {
	return !g.mu.closed && !g.h.draining.Load() && g.mu.paused == nil && (len(g.mu.consumers) > 0 || g.mu.pulls.number() > 0)
}

// pullSession is all unary pulls of a group, as the rules' policies know them.
const pullSession dispatch.SessionID = 0

// pullAgain is how long after a pull the next one is expected: until then there is a consumer to the rules.
const pullAgain = time.Minute

// statusLocked is why nothing may be delivered; nil: it may.
func (g *group) statusLocked() error {
	if err := g.mu.record.Spec.Status.GroupError(g.queuePath, g.name); err != nil || g.mu.source == "" {
		return err
	}
	return g.mu.source.ConsumeError(g.queuePath)
}

// consumable reports why a consumer that has just come may not be delivered to, by the newest records: what it was
// enabled for a moment ago, it may consume.
func (g *group) consumable(ctx context.Context) error {
	g.mu.Lock()
	known := g.mu.source != "" && g.mu.paused == nil
	g.mu.Unlock()
	if !known {
		if err := g.h.refreshGroups(ctx, []*group{g}); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.paused
}

// touchLocked has the next pump look at a share. The rules of the share tell of their own changes: see
// dispatch.Group.TakeChanged.
func (g *group) touchLocked(s *share) {
	if !s.touched && !s.removed {
		s.touched = true
		s.nextTouched, g.mu.touched = g.mu.touched, s
	}
	if s.extent.Chain > 0 && !s.rules.Waits() { // those that wait do so for one of these
		g.mu.reorder = true
	}
}

// takeChangedLocked adds the shares that the rules list as changed.
func (g *group) takeChangedLocked() {
	g.mu.rules.TakeChanged(func(rules *dispatch.Share) {
		if s := shareOf(rules); s != nil {
			g.touchLocked(s)
		}
	})
}

// connectedLocked is how many sessions take messages: the consumers, and pulls count as two, since each is a session of
// its own that holds nothing.
func (g *group) connectedLocked(now time.Time) int {
	n := len(g.mu.consumers)
	if g.pullsLocked(now) {
		n += 2
	}
	return n
}

// pullsLocked reports whether pulls take messages: one waits, or the next one is expected.
func (g *group) pullsLocked(now time.Time) bool {
	return g.mu.pulls.number() > 0 || g.h.elapsed(now)-g.mu.pulled < pullAgain
}

// placeLocked is where the consumer of a session is in the list, or would be.
func (g *group) placeLocked(id dispatch.SessionID) (i int, there bool) {
	return slices.BinarySearchFunc(g.mu.consumers, id, func(c *consumer, id dispatch.SessionID) int { return cmp.Compare(c.id, id) })
}

// consumerLocked is the consumer of a session, or nil.
func (g *group) consumerLocked(id dispatch.SessionID) *consumer {
	if i, there := g.placeLocked(id); there {
		return g.mu.consumers[i]
	}
	return nil
}

// maxNames bounds how many past consumers a group remembers by name.
const maxNames = 1024

func (g *group) rememberLocked(id dispatch.SessionID, name string) {
	if len(g.mu.names) >= maxNames {
		oldest := id
		for o := range g.mu.names {
			oldest = min(oldest, o)
		}
		delete(g.mu.names, oldest)
	}
	if g.mu.names == nil {
		g.mu.names = make(map[dispatch.SessionID]string)
	}
	g.mu.names[id] = name
}

func (g *group) nameLocked(id dispatch.SessionID) string { return g.mu.names[id] }
