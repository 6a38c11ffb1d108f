// Package transfer appends messages that leave the shares of groups to the groups' built-in queues: durably there
// first, then the share is told, and settles them. There is one way for all destinations; what differs between them is
// a route. core/dispatch defines a transfer and its promises.
package transfer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/transfer/history"
	"github.com/columbamq/columba/outputhost/transfer/retryqueue"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

const (
	// Timeout is of looks and appends that begin together; less than dispatch.TransferDoubt by all that holds one up at
	// an input host.
	Timeout = 15 * time.Second
	retry   = time.Second // after a failed append, and the least time that an append has
	// displaced is the least time of an append whose message is handed out from nowhere else meanwhile. Appends of busy
	// disks take longer than a retry: an outcome that is not waited for is unknown, and costs a look-up and another
	// append.
	displaced = 5 * time.Second
	warning   = 10 * time.Second // between warnings about one group
	atOnce    = 256              // messages that leave for a queue together

	lookTimeout = 10 * time.Second // of one look-up
	lookAgain   = 10 * time.Second // after a failed one
	// patience is how long messages wait for look-ups that fail before they are appended without one: a second copy is
	// possible then, a loss never.
	patience = 5 * time.Minute
)

// errUnderWay is of messages that the queue does not have yet, and may get.
var errUnderWay = core.Errorf(core.CodeUnavailable, "an earlier append of the message may still be under way")

// Group is whose messages are transferred. Its methods are called from several goroutines, without locks held.
type Group interface {
	// Record is the group's row, as far as it is known.
	Record() metadata.GroupRecord
	// Sender is what goes with a message: who had it last, and the group's epoch.
	Sender(session dispatch.SessionID) (consumer string, epoch uint64)
	// Owns reports whether the message's share is this host's still, and if an earlier owner of it may have appended
	// the message, since when.
	Owns(t dispatch.Transfer) (since time.Time, owns bool)
	// Settle tells the share the outcome of an append, also one that was given up meanwhile: its buffers are released
	// by it. The message is tried again at retryAt if there is an error; CodeUnknown says that the queue may have it.
	Settle(t dispatch.Transfer, err error, retryAt, now time.Time)
	// Pump has the group go on after outcomes, with what its outbox takes next, too.
	Pump()
	// Outbox is the group's.
	Outbox() *Outbox
}

// Reader reads built-in queues: all records that will not vanish any more, whoever reads them, settled or not, merged
// or purged, as long as a store has them. Errors say that it could not read everything.
type Reader interface {
	// EachSince calls f for the records of a queue that were appended since an instant, until it answers false.
	EachSince(ctx context.Context, queue core.QueueID, since time.Time, f func(*wire.Record) (more bool)) error
	// EachDue calls f for the records of the timer extents of a queue that are due at one of some instants (unix ms),
	// until it answers false. It sorts due.
	EachDue(ctx context.Context, queue core.QueueID, due []int64, f func(*wire.Record) (more bool)) error
}

// Config of a Mover. All fields are needed.
type Config struct {
	Meta   metadata.Store
	Reader Reader
	Tasks  *lifecycle.Tasks // what the mover starts
	Client string           // as input hosts know this one
	Hosts  func() []publish.Host
	Dial   func(ctx context.Context, h publish.Host) (*ws.Mux, error)
	Now    func() time.Time
	Moved  func(to dispatch.Destination) // counts a message that was transferred
	Log    *slog.Logger
}

// Mover transfers the messages of all groups of a host. It is safe for concurrent use.
type Mover struct {
	cfg Config
	publishers
}

// New makes a mover; it does no I/O.
func New(cfg Config) *Mover {
	return &Mover{cfg: cfg, publishers: publishers{open: make(map[address]*publisher)}}
}

// Begin sends messages of one destination that an Outbox took. They wait for room at a publisher, which may need what
// the caller has to do: so they have a goroutine of their own. They were taken at began, while the lease held: Timeout
// later nothing of them is sent any more, also when this process stands still in between.
func (m *Mover) Begin(g Group, began time.Time, some []dispatch.Transfer) {
	m.cfg.Tasks.Go(func(ctx context.Context) {
		ctx, cancel := context.WithDeadline(ctx, began.Add(Timeout))
		defer cancel()
		fresh, again := m.letters(ctx, g, some)
		var looks sync.WaitGroup
		if len(again) > 0 && m.mayLook(g, again) {
			looks.Go(func() { // it has all of the time, however long the publisher has no room
				m.lookAndSend(ctx, g, again)
				g.Pump()
			})
		}
		for _, x := range fresh {
			m.append(ctx, g, x)
		}
		g.Outbox().over(some[0].To)
		g.Pump()
		looks.Wait()
	})
}

// letter is a message and its record for the queue.
type letter struct {
	dispatch.Transfer
	record *wire.Record
}

// letters are the records of messages that are to be appended, and of those that may be in the queue already. The
// outcomes of others come back to their shares; the caller pumps the group.
func (m *Mover) letters(ctx context.Context, g Group, some []dispatch.Transfer) (fresh, again []letter) {
	err := routes[some[0].To].prepare(ctx, m, g)
	for _, t := range some {
		if err != nil { // nothing was appended, whatever became of the queue
			m.settle(g, t, core.Errorf(core.CodeUnavailable, "%w", err), retry)
			continue
		}
		if _, owns := g.Owns(t); !owns { // its next owner knows of it
			m.settle(g, t, core.Errorf(core.CodeMoved, "the share was given up"), retry)
			continue
		}
		consumer, epoch := g.Sender(t.Session)
		record, err := history.Record(t, consumer, epoch)
		switch {
		case err != nil:
			m.settle(g, t, err, retry)
		case t.Again:
			again = append(again, letter{t, record})
		default:
			fresh = append(fresh, letter{t, record})
		}
	}
	return fresh, again
}

// errLooking has messages come again later: a look-up reads much, and is made for many at a time.
var errLooking = core.Errorf(core.CodeUnavailable, "an earlier look-up for messages that may be in the queue is under way")

// mayLook reports whether a look-up for messages may begin, which lookAndSend ends. Else another one is under way, and
// they come again later.
func (m *Mover) mayLook(g Group, some []letter) bool {
	if g.Outbox().beginLook(some[0].To) {
		return true
	}
	now := m.cfg.Now()
	for _, x := range some {
		g.Settle(x.Transfer, errLooking, now.Add(retry), now)
	}
	return false
}

// find tells which messages the queue has. An error says that it may have others.
func (m *Mover) find(ctx context.Context, g Group, some []letter) (map[history.Copy]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	to, there := some[0].To, make(map[history.Copy]bool, len(some))
	for _, x := range some {
		there[history.CopyOf(to, x.record)] = false
	}
	left := len(there)
	err := routes[to].search(ctx, m, g, some, func(record *wire.Record) (more bool) {
		c := history.CopyOf(to, record)
		if found, wanted := there[c]; wanted && !found {
			there[c] = true
			left--
		}
		return left > 0
	})
	return there, err
}

// lookAndSend looks in the queue for messages that may be there already, and appends those that it does not have, and
// will not get by an earlier append. Meanwhile other messages leave, but for those that are to be looked for, too.
func (m *Mover) lookAndSend(ctx context.Context, g Group, some []letter) {
	to, now := some[0].To, m.cfg.Now()
	defer g.Outbox().endLook(to)
	there, err := m.find(ctx, g, some)
	if !g.Outbox().looked(to, err, now) {
		if g.Outbox().warns(now) {
			m.cfg.Log.Warn("cannot search a built-in queue for earlier copies of messages, and appends them: the queue may have them twice. Check the stores of the queue", "to", to.String(), "queue", g.Record().Spec.Queue, "group", g.Record().Spec.Name, "messages", len(some), "err", err)
		}
		err = nil
	}
	for _, x := range some {
		switch {
		case there[history.CopyOf(to, x.record)]:
			m.settle(g, x.Transfer, nil, 0)
		case now.Before(x.Certain):
			g.Settle(x.Transfer, errUnderWay, x.Certain, now)
		case err != nil:
			m.settle(g, x.Transfer, core.Errorf(core.CodeUnavailable, "%w", err), lookAgain)
		default:
			m.append(ctx, g, x)
		}
	}
}

// timeout is how long the outcome of an append is waited for: should it fail, the message can still be handed out in
// time, or soon after.
func (x *letter) timeout(now time.Time) time.Duration {
	switch {
	case x.Due.IsZero():
		return Timeout
	case x.Returns:
		return min(Timeout, max(x.Due.Sub(now), retry))
	}
	return min(Timeout, max(x.Due.Sub(now), displaced))
}

// append hands a record to the publisher of its queue, which tells the group of the outcome.
func (m *Mover) append(ctx context.Context, g Group, x letter) {
	group := g.Record()
	err := m.publish(ctx, g, address{group.ID, routes[x.To].path(group.Spec.Queue, group.Spec.Name)}, x.record, x.timeout(m.cfg.Now()), func(err error) { m.settle(g, x.Transfer, err, retry) })
	if err != nil {
		m.settle(g, x.Transfer, err, retry)
	}
}

// settle applies an outcome, and has the message tried again after a pause if there is an error. After an unknown one
// the message is looked for before it is appended again.
func (m *Mover) settle(g Group, t dispatch.Transfer, err error, pause time.Duration) {
	now := m.cfg.Now()
	g.Settle(t, err, now.Add(pause), now)
	warn := g.Outbox().note(t.To, err, now)
	switch {
	case warn:
		m.cfg.Log.Warn("cannot transfer a message to a built-in queue; the host tries again within seconds", "to", t.To.String(), "queue", g.Record().Spec.Queue, "group", g.Record().Spec.Name, "seq", t.Seq, "err", err)
	case err == nil:
		m.cfg.Moved(t.To)
	}
}

// route is what differs between the destinations.
type route struct {
	// path of the queue.
	path func(queue, group string) string
	// prepare has the queue be there.
	prepare func(ctx context.Context, m *Mover, g Group) error
	// search calls f for the records of the queue that earlier appends of messages may have made, and for others, until
	// it answers false. An error says that it could not look everywhere.
	search func(ctx context.Context, m *Mover, g Group, some []letter, f func(*wire.Record) (more bool)) error
}

var routes = [dispatch.Destinations]route{
	dispatch.DeadLetterQueue: {
		path:    core.DLQPath,
		prepare: func(context.Context, *Mover, Group) error { return nil }, // it is made with the group
		search:  searchDead,
	},
	dispatch.RetryQueue: {
		path:    core.RetryPath,
		prepare: ensureRetry,
		search:  searchDelayed,
	},
}

// lookBack is how much earlier than an append its record may seem to be: the clocks of hosts differ, and what is known
// of the time of an append is when an owner saved its checkpoint last. Owners that die one after another, before they
// look, save later ones: three of them fit in.
const lookBack = 2*time.Minute + 3*dispatch.TransferDoubt

// searchDead reads the messages appended to the dead letter queue since the earliest time at which the first of the
// given messages may have been appended.
func searchDead(ctx context.Context, m *Mover, g Group, some []letter, f func(*wire.Record) (more bool)) error {
	since := m.cfg.Now()
	for _, x := range some {
		at := x.Since
		if at.IsZero() {
			at, _ = g.Owns(x.Transfer)
		}
		if !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	return m.cfg.Reader.EachSince(ctx, g.Record().DLQ, since.Add(-lookBack), f)
}

// searchDelayed reads what is due in the retry queue when the messages are: however often one is appended, it has the
// same due time.
func searchDelayed(ctx context.Context, m *Mover, g Group, some []letter, f func(*wire.Record) (more bool)) error {
	group := g.Record()
	if group.Retry.IsZero() { // it was made since the group's record was read; one copy of the metadata may not know that
		now, _, err := metadata.Read[metadata.GroupRecord](ctx, m.cfg.Meta, metadata.Groups, metadata.GroupKey(group.Queue, group.Spec.Name), metadata.Quorum)
		switch {
		case err != nil:
			return err
		case now.ID != group.ID || now.Retry.IsZero():
			return nil
		}
		group.Retry = now.Retry
	}
	due := make([]int64, len(some))
	for i, x := range some {
		due[i] = x.record.DeliverAt
	}
	return m.cfg.Reader.EachDue(ctx, group.Retry, due, f)
}

// ensureRetry makes the group's retry queue, unless it is there.
func ensureRetry(ctx context.Context, m *Mover, g Group) error {
	box := g.Outbox()
	if box.isReady(dispatch.RetryQueue) {
		return nil
	}
	err := retryqueue.Ensure(ctx, m.cfg.Meta, g.Record(), m.cfg.Now())
	if err == nil {
		box.setReady(dispatch.RetryQueue)
	}
	return err
}
