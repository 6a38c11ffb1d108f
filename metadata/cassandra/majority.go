package cassandra

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

const (
	refuseFor = time.Second     // after a failure
	probeTime = 5 * time.Second // another call is let through then, though the last one has not ended

	// patience is how long a caller has waited without any answer if that says something about the replicas. Many
	// callers have less time than Cassandra takes to answer that it timed out.
	patience = 500 * time.Millisecond
)

// startNodes is what an operator does when too few replicas answer. It ends the texts of errors.
const startNodes = "start the Cassandra nodes that are down: `columba schema show` with the URL of --metadata lists them"

// errTooFew ends calls that are not sent.
var errTooFew = errors.New("too few Cassandra nodes answer; " + startNodes)

// majority remembers that too few replicas answer. Calls that need a majority are refused then, but for one after each
// pause, which finds out whether they answer again. Without that, each call on a minority side waits for the timeouts
// of Cassandra, 2 to 5 s, until its nodes notice that others are away.
//
//	answered ──too few──▶ lacking ──a pause is over: one call is let through──▶ too few or no answer: lacking
//	   ▲                     │                                                  │
//	   └─────────────────────┴────────────────── answered ──────────────────────┘
//
// A failure counts only if no call was answered since it began: then one slow call, or one partition under contention,
// says nothing about the others.
type majority struct {
	answered time.Time // when a call was answered last
	lacking  bool
	next     time.Time // when the next call is let through, while lacking
}

// admit reports whether a call may be sent.
func (m *majority) admit(now time.Time) bool {
	if !m.lacking {
		return true
	}
	if now.Before(m.next) {
		return false
	}
	m.next = now.Add(probeTime)
	return true
}

// ended takes in how a call ended that began then. few: too few replicas answered it.
func (m *majority) ended(began, now time.Time, err error, few bool) {
	switch {
	case err == nil:
		m.answered, m.lacking = now, false
	case m.lacking:
		m.next = now.Add(refuseFor)
	case few && !began.Before(m.answered):
		m.lacking, m.next = true, now.Add(refuseFor)
	}
}

// tooFew reports whether a call at QUORUM or SERIAL failed because too few replicas answered. A transaction that timed
// out does not say so: others that change the same row may have held it up.
func tooFew(err error, swap bool) bool {
	if unavailable := (*gocql.RequestErrUnavailable)(nil); errors.As(err, &unavailable) {
		return unavailable.Alive < unavailable.Required
	}
	if swap {
		return false
	}
	if read := (*gocql.RequestErrReadTimeout)(nil); errors.As(err, &read) {
		return read.Received < read.BlockFor && !serial(read.Consistency)
	}
	if write := (*gocql.RequestErrWriteTimeout)(nil); errors.As(err, &write) {
		return write.Received < write.BlockFor
	}
	return errors.Is(err, gocql.ErrTimeoutNoResponse) // of all nodes: the driver asks one after the other
}

// guarded is a session that sends no calls at QUORUM and SERIAL while a majority is lacking. Calls at ONE are always
// sent.
//
// It remembers one thing for all rows, which is right while each node has each row. In a cluster with more nodes than
// replicas two nodes may be the majority of some partitions, and of few others. If it remembered their failures,
// it would refuse calls that would be done. Its memory is off there, and each call finds out by itself. That costs
// little once the nodes have noticed who is away: an answer comes within milliseconds then. To remember it for each set
// of replicas needs the ring of tokens, which the driver knows only for sessions of one keyspace.
type guarded struct {
	session
	everywhere func() bool // each node has each row
	log        *slog.Logger
	mu         sync.Mutex
	majority   majority
}

var _ session = (*guarded)(nil)

func (g *guarded) write(ctx context.Context, c gocql.Consistency, statements []statement) (touched bool, err error) {
	err = g.guard(ctx, c, false, func() (bool, error) {
		touched, err = g.session.write(ctx, c, statements)
		return false, err
	})
	return touched, err
}

func (g *guarded) swap(ctx context.Context, s statement) (applied bool, found state, err error) {
	err = g.guard(ctx, gocql.Quorum, true, func() (bool, error) {
		applied, found, err = g.session.swap(ctx, s)
		return false, err
	})
	return applied, found, err
}

func (g *guarded) read(ctx context.Context, c gocql.Consistency, page int, s statement, each func(gocql.Scanner) (bool, error)) error {
	return g.guard(ctx, c, false, func() (some bool, err error) {
		err = g.session.read(ctx, c, page, s, func(rows gocql.Scanner) (bool, error) {
			some = true
			return each(rows)
		})
		return some, err
	})
}

func (g *guarded) page(ctx context.Context, c gocql.Consistency, size int, from []byte, s statement, each func(gocql.Scanner) error) (next []byte, err error) {
	err = g.guard(ctx, c, false, func() (some bool, err error) {
		next, err = g.session.page(ctx, c, size, from, s, func(rows gocql.Scanner) error {
			some = true
			return each(rows)
		})
		return some, err
	})
	return next, err
}

// guard does a call unless it would only find out again that too few replicas answer. some: part of the answer came,
// so enough replicas were there.
func (g *guarded) guard(ctx context.Context, c gocql.Consistency, swap bool, call func() (some bool, err error)) error {
	if c == gocql.One || !g.everywhere() {
		_, err := call()
		return err
	}
	began := time.Now()
	g.mu.Lock()
	ok := g.majority.admit(began)
	g.mu.Unlock()
	if !ok {
		return errTooFew
	}
	some, err := call()
	now := time.Now()
	few := !some && (tooFew(err, swap) || !swap && ctx.Err() != nil && now.Sub(began) >= patience)
	g.mu.Lock()
	defer g.mu.Unlock()
	lacked := g.majority.lacking
	g.majority.ended(began, now, err, few)
	switch lacks := g.majority.lacking; {
	case g.log == nil || lacks == lacked:
	case lacks:
		g.log.Warn("too few Cassandra nodes answer. AP queues go on, most commands fail; "+startNodes, "error", err)
	default:
		g.log.Info("enough Cassandra nodes answer again")
	}
	return err
}
