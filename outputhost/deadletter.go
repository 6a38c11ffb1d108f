package outputhost

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/outputhost/past"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// letters appends exhausted and rejected messages to the dead letter queues of their groups, and those that wait long to their retry queues: durably
// there first, then acked here. One publisher serves such a queue while it has work.
type letters struct {
	h  *Host
	mu struct {
		sync.Mutex
		publishers map[address]*letterbox
	}
}

// address of a built-in queue. A group that is made anew has others, under the same paths.
type address struct {
	group core.GroupID
	path  string
}

type letterbox struct {
	publisher *publish.Publisher
	cancel    context.CancelFunc
	used      time.Time
	told      []*group // who got outcomes since they were pumped; of the publisher's goroutine that tells them
}

const (
	letterTimeout = 15 * time.Second // of looks and appends that begin together; less than dispatch.TransferDoubt by all that holds one up at an input host
	letterRetry   = time.Second      // after a failed one
	letterWarning = 10 * time.Second // between warnings about one group
	letterIdle    = time.Minute      // an unused publisher is closed
)

func newLetters(h *Host) *letters {
	l := &letters{h: h}
	l.mu.publishers = make(map[address]*letterbox)
	return l
}

// letter is a dead message and its record for the dead letter queue.
type letter struct {
	dispatch.Dead
	record *wire.Record
}

// bury takes messages; their outcomes come back to their shares. Those that the dead letter queue may have already are looked for there first. The group is
// pumped for all that came together; after appends that did not begin, by the caller.
func (l *letters) bury(ctx context.Context, g *group, dead []dispatch.Dead) {
	var again []letter
	for _, d := range dead {
		if !g.owns(d.Share) { // its next owner knows of it
			l.buried(g, d, core.Errorf(core.CodeMoved, "the share was given up"))
			continue
		}
		consumer, epoch := g.senderOf(d.Session)
		record, err := past.Letter(d, consumer, epoch)
		switch {
		case err != nil:
			l.buried(g, d, err)
		case d.Again:
			again = append(again, letter{d, record})
		default:
			l.appendLetter(ctx, g, letter{d, record})
		}
	}
	if len(again) > 0 {
		l.lookAndBury(ctx, g, again)
	}
}

// lookAndBury appends the messages that the dead letter queue does not have yet.
func (l *letters) lookAndBury(ctx context.Context, g *group, some []letter) {
	want := make(map[past.Life]bool, len(some))
	since := l.h.deps.Now()
	for _, x := range some {
		want[past.LifeOf(x.record)] = true
		if at := g.appendedSince(x.Dead); at.Before(since) {
			since = at
		}
	}
	found, err := l.h.lookUpLetters(ctx, g, since.Add(-lookBack), want)
	if !g.patientLook(err, l.h.deps.Now()) {
		l.h.log.Warn("dead letters are appended that could not be looked for; they may be listed twice", "queue", g.queuePath, "group", g.name, "messages", len(some), "err", err)
		err = nil
	}
	for _, x := range some {
		switch {
		case found[past.LifeOf(x.record)]:
			l.buried(g, x.Dead, nil)
		case err != nil:
			l.buried(g, x.Dead, core.Errorf(core.CodeUnavailable, "%w", err))
		default:
			l.appendLetter(ctx, g, x)
		}
	}
}

func (l *letters) appendLetter(ctx context.Context, g *group, x letter) {
	err := l.append(ctx, g, address{g.id, core.DLQPath(g.queuePath, g.name)}, x.record, letterTimeout, func(err error) { l.buried(g, x.Dead, err) })
	if err != nil {
		l.buried(g, x.Dead, err)
	}
}

// owns reports whether a share of the group is this host's still.
func (g *group) owns(rules *dispatch.Share) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return shareOf(rules) != nil
}

// appendedSince is when a message may have been appended first.
func (g *group) appendedSince(d dispatch.Dead) time.Time {
	if !d.Since.IsZero() {
		return d.Since
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := shareOf(d.Share); s != nil && s.intended != 0 {
		return time.Unix(0, s.intended)
	}
	return g.h.deps.Now()
}

// patientLook takes the outcome of a look-up, and reports whether a failed one is to be tried again.
func (g *group) patientLook(err error, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.mu.lookFailed = 0
		return true
	case g.mu.lookFailed == 0:
		g.mu.lookFailed = now.UnixNano()
	}
	return now.UnixNano()-g.mu.lookFailed < int64(lookPatience)
}

// park is bury for a message that has to wait long.
func (l *letters) park(ctx context.Context, g *group, p dispatch.Parking) {
	consumer, epoch := g.senderOf(p.Session)
	record, err := past.Parked(p, consumer, epoch)
	if err == nil && p.Again && l.h.isParked(ctx, g, record) {
		l.parked(g, p, nil)
		return
	}
	if err == nil {
		timeout := min(letterTimeout, max(p.Due.Sub(l.h.deps.Now()), letterRetry)) // should it fail it can still be handed out in time
		err = l.append(ctx, g, address{g.id, core.RetryPath(g.queuePath, g.name)}, record, timeout, func(err error) { l.parked(g, p, err) })
	}
	if err != nil {
		l.parked(g, p, err)
	}
}

// append hands a record to the publisher of a built-in queue, which tells done of the outcome.
func (l *letters) append(ctx context.Context, g *group, to address, record *wire.Record, timeout time.Duration, done func(error)) error {
	box, err := l.letterbox(to)
	if err != nil {
		return err
	}
	return box.publisher.Append(ctx, record, timeout, publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) {
		if !slices.Contains(box.told, g) {
			box.told = append(box.told, g)
		}
		done(err)
	}))
}

// pump has the groups go on that were told outcomes.
func (b *letterbox) pump() {
	for _, g := range b.told {
		g.pump()
	}
	clear(b.told)
	b.told = b.told[:0]
}

// senderOf is what goes with a message that leaves the group's shares: who had it last, and the group's epoch.
func (g *group) senderOf(session dispatch.SessionID) (consumer string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.nameLocked(session), g.mu.record.Epoch
}

// parked applies the outcome of an append to the retry queue, also to a share that was given up meanwhile. An unknown one is tried again: whoever reads
// the retry queue drops the second of two.
func (l *letters) parked(g *group, p dispatch.Parking, err error) {
	now := l.h.deps.Now()
	g.mu.Lock()
	if err != nil {
		p.Share.ParkFailed(p.Seq, core.CodeOf(err) == core.CodeUnknown, now.Add(letterRetry), now)
		g.mu.retryReady = g.mu.retryReady && core.CodeOf(err) != core.CodeNotFound
	} else {
		p.Share.Parked(p.Seq, now)
		g.mu.settled += l.h.cfg.CheckpointAcks // it pins its extent until that is saved
	}
	g.mu.parkErr = err
	warn := g.warnLocked(err, now)
	g.mu.Unlock()
	switch {
	case warn:
		l.h.log.Warn("a message could not be parked yet", "queue", g.queuePath, "group", g.name, "seq", p.Seq, "err", err)
	case err == nil:
		l.h.metrics.parked.Inc()
	}
}

// warnLocked reports whether a failure is to be logged.
func (g *group) warnLocked(err error, now time.Time) bool {
	warn := err != nil && now.UnixNano()-g.mu.warned >= int64(letterWarning)
	if warn {
		g.mu.warned = now.UnixNano()
	}
	return warn
}

// buried applies the outcome of an append, also to a share that was given up meanwhile: its buffers are released by it. After an unknown one the message
// is looked for before it is appended again.
func (l *letters) buried(g *group, d dispatch.Dead, err error) {
	now := l.h.deps.Now()
	g.mu.Lock()
	if err != nil {
		d.Share.DeadFailed(d.Seq, core.CodeOf(err) == core.CodeUnknown, now.Add(letterRetry), now)
	} else {
		d.Share.DeadLettered(d.Seq, now)
		g.mu.settled += l.h.cfg.CheckpointAcks // until that is saved, a crash has it looked for
	}
	g.mu.letterErr = err
	warn := g.warnLocked(err, now)
	g.mu.Unlock()
	switch {
	case warn:
		l.h.log.Warn("a dead letter could not be written yet", "queue", g.queuePath, "group", g.name, "seq", d.Seq, "err", err)
	case err == nil:
		l.h.metrics.deadLettered.Inc()
	}
}

// letterbox finds or makes the publisher for a built-in queue and closes those that were not used for a while.
func (l *letters) letterbox(to address) (*letterbox, error) {
	now := l.h.deps.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, box := range l.mu.publishers {
		if p != to && now.Sub(box.used) > letterIdle {
			box.cancel()
			delete(l.mu.publishers, p)
		}
	}
	if box := l.mu.publishers[to]; box != nil {
		box.used = now
		return box, nil
	}
	box := &letterbox{used: now}
	box.publisher = publish.New(publish.Config{
		Queue: to.path, Client: string(l.h.deps.Members.Self().ID), Internal: true, Owner: to.group, Once: true,
		Route: func(context.Context) ([]publish.Host, error) { return l.route() },
		Dial: func(ctx context.Context, h publish.Host) (*ws.Mux, error) {
			return l.h.deps.Peers.Link(ctx, h.Address, "/v1/publish")
		},
		Told: box.pump,
		Log:  l.h.log,
	})
	ctx, cancel := context.WithCancel(l.h.tasks.Context())
	box.cancel = cancel
	ok := l.h.tasks.Go(func(context.Context) {
		defer cancel()
		if err := box.publisher.Run(ctx); err != nil && ctx.Err() == nil {
			l.h.log.Warn("publisher of a built-in queue ended", "queue", to.path, "err", err)
		}
	})
	if !ok {
		cancel()
		return nil, core.Errorf(core.CodeDraining, "output host is stopping")
	}
	l.mu.publishers[to] = box
	return box, nil
}

// route takes the input hosts there are: a built-in queue is written by hosts only, so no frontend has to be asked.
func (l *letters) route() ([]publish.Host, error) {
	var out []publish.Host
	for _, m := range l.h.deps.Members.Hosts("inputhost") {
		out = append(out, publish.Host{ID: m.ID, Address: m.Address})
	}
	if len(out) == 0 {
		return nil, core.Errorf(core.CodeUnavailable, "no input host is known")
	}
	return out, nil
}
