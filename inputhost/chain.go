package inputhost

import (
	"context"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/metadata"
)

// chain is what keeps the order of a CP queue's publishers on this host; its queue guards it. All chunks wait in one
// line, which feeds the one open extent. Nothing is opened while an older extent of this host is not sealed and all its
// chunks are answered.
//
// A session begins while this host owns the head of the chain, and goes on for as long as the extents that follow are
// this host's too: with another's in between, a newer session of the same publisher may have written there. It ends
// with its first record that is not stored; what is still waiting of it then is never appended.
type chain struct {
	last     uint64                    // place of the newest extent that was this host's; 0: none was
	newest   map[core.ID]*publisher    // session of each publisher
	rest     []writer.Chunk            // came back while somebody fed: before what waits
	claims   map[*publisher]chan error // sessions that wait for the head; each hears once
	sessions map[*publisher]struct{}   // that have begun
	unsealed unsealed
	rolling  rolling
}

// unsealed is for how long the head that was this host's could not be sealed, and why.
type unsealed struct {
	since time.Time // zero: the last try succeeded, or there was none
	why   error
}

// unsealedMost is for how long sessions wait for the seal of the head when tries fail.
const unsealedMost = 2 * time.Second

// lasts is why nothing is to wait any longer; nil: it may be sealed in a moment.
func (u unsealed) lasts(now time.Time) error {
	if u.since.IsZero() || now.Sub(u.since) < unsealedMost {
		return nil
	}
	return u.why
}

// seal asks the controller for the end of an extent. Sessions that wait for the head hear why it cannot be sealed.
func (q *queue) seal(ctx context.Context, e core.Extent, end writer.End) (l core.Seq, holders int, err error) {
	l, holders, err = q.h.seal(ctx, e, end)
	if !q.ordered {
		return l, holders, err
	}
	why := err
	if err != nil {
		why = q.unsealedFor(ctx, e.ID, err)
	}
	now := q.h.deps.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.mu.chain
	switch {
	case err == nil:
		c.unsealed = unsealed{}
		return l, holders, err
	case c.unsealed.since.IsZero():
		c.unsealed.since = now
	}
	c.unsealed.why = why
	if why := c.unsealed.lasts(now); why != nil {
		c.refuseLocked(why)
	}
	return l, holders, err
}

// unsealedFor is what publishers are told when the head cannot be sealed. The metadata are asked whether they are the
// reason, unless the controller says so.
func (q *queue) unsealedFor(ctx context.Context, head core.ExtentID, why error) error {
	meta, m := q.h.deps.Meta, metadata.MajorityOf(q.h.deps.Meta)
	switch {
	case core.CodeOf(why) == core.CodeNoMajority:
		return core.Errorf(core.CodeNoMajority, "queue %s takes no messages until its extent %s is sealed: %w", q.path, head, why)
	case m != nil:
		err := m.Ask(ctx, func(ctx context.Context) error {
			_, err := meta.Get(ctx, metadata.Seals, metadata.SealKey(head), metadata.Quorum)
			return err
		})
		if core.CodeOf(err) == core.CodeNoMajority {
			return core.Errorf(core.CodeNoMajority, "queue %s takes no messages until its extent %s is sealed, for which the metadata need a majority: %w", q.path, head, err)
		}
	}
	return core.Errorf(core.CodeUnavailable, "queue %s takes no messages until its extent %s is sealed: %w", q.path, head, why)
}

func newChain() chain {
	return chain{newest: make(map[core.ID]*publisher), claims: make(map[*publisher]chan error), sessions: make(map[*publisher]struct{})}
}

// greet takes over what a hello says of the publisher.
func (p *publisher) greet(hello *pb.PublishHello) error {
	id, err := core.IDFromBytes(hello.Producer)
	if err != nil || id.IsZero() || hello.Session == 0 {
		return core.Errorf(core.CodeBadArgument, "queue %s keeps its publishers' order: a hello needs a producer of 16 bytes and a session from 1", hello.Queue)
	}
	p.producer, p.number = id, hello.Session
	return nil
}

// join begins a session once this host owns the head of the chain; older ones of the same publisher end. CodeMoved:
// another host owns it.
func (q *queue) join(ctx context.Context, p *publisher) error {
	q.mu.Lock()
	c := &q.mu.chain
	old := c.newest[p.producer]
	if old != nil && old.number >= p.number {
		q.mu.Unlock()
		return core.Errorf(core.CodeMoved, "session %d of this publisher is not its newest: that is %d", p.number, old.number)
	}
	c.newest[p.producer] = p
	var wait chan error
	if len(q.mu.open.slots) > 0 {
		c.sessions[p] = struct{}{}
	} else {
		wait = make(chan error, 1)
		c.claims[p] = wait
	}
	if old != nil {
		old.ended.Store(true)
	}
	if wait != nil && q.neededLocked() {
		q.openLocked()
	}
	if why := c.unsealed.lasts(q.h.deps.now()); wait != nil && len(q.mu.writers) > 0 && why != nil {
		delete(c.claims, p)
		wait <- why
	}
	q.mu.Unlock()
	if old != nil {
		q.endAll([]*publisher{old}, core.Errorf(core.CodeMoved, "the publisher has begun a newer session"))
	}
	if wait == nil {
		return nil
	}
	select {
	case err := <-wait:
		return err
	case <-ctx.Done():
		return core.Errorf(core.CodeUnavailable, "queue %s has no open extent yet: %w", q.path, context.Cause(ctx))
	}
}

// neededLocked reports whether the next extent of the chain is to be opened.
func (q *queue) neededLocked() bool {
	return len(q.mu.open.slots) == 0 && len(q.mu.writers) == 0 && len(q.mu.waiting)+len(q.mu.chain.claims) > 0
}

// leaveLocked forgets a stream.
func (c *chain) leaveLocked(p *publisher) {
	delete(c.claims, p)
	delete(c.sessions, p)
	if c.newest[p.producer] == p {
		delete(c.newest, p.producer)
	}
}

// admitLocked begins the sessions that waited for the head.
func (c *chain) admitLocked() {
	for p, wait := range c.claims {
		delete(c.claims, p)
		c.sessions[p] = struct{}{}
		wait <- nil
	}
}

// refuseLocked ends the wait of those who wait for the head.
func (c *chain) refuseLocked(err error) {
	for p, wait := range c.claims {
		delete(c.claims, p)
		wait <- err
	}
}

// endLocked ends all sessions; the caller passes them to endAll.
func (c *chain) endLocked() (ended []*publisher) {
	for p := range c.sessions {
		p.ended.Store(true)
		delete(c.sessions, p)
		ended = append(ended, p)
	}
	return ended
}

// endAll refuses what waits of sessions that have ended, and then their streams.
func (q *queue) endAll(ended []*publisher, err error) {
	if len(ended) == 0 {
		return
	}
	q.mu.Lock()
	var kept, out []writer.Chunk
	for _, c := range q.mu.waiting {
		if c.From.Gone() {
			out = append(out, c)
		} else {
			kept = append(kept, c)
		}
	}
	q.mu.waiting = kept
	q.mu.Unlock()
	refuse(out, core.CodeOf(err))
	for _, p := range ended {
		p.fail(err)
	}
}

// link notes that the extent at a place of the chain is this host's. When others were in between, the sessions of
// before do not go on.
func (q *queue) link(place uint64) {
	q.mu.Lock()
	c := &q.mu.chain
	var ended []*publisher
	if c.last != 0 && place > c.last+1 {
		ended = c.endLocked()
	}
	c.last = place
	q.mu.Unlock()
	q.endAll(ended, core.Errorf(core.CodeMoved, "another input host took the messages of queue %s meanwhile", q.path))
}

// unopened is told why the head could not be opened. When it is another host's, publishers have to go there. When no
// majority of the metadata answers, they wait: see majorityPatience.
func (q *queue) unopened(err error, again bool) {
	var ended []*publisher
	q.mu.Lock()
	if core.CodeOf(err) == core.CodeMoved {
		ended = q.mu.chain.endLocked()
	}
	if lacks := core.CodeOf(err) == core.CodeNoMajority; !again && (!lacks || q.mu.outage.lasts(q.h.deps.now())) {
		q.mu.chain.refuseLocked(err)
	}
	q.mu.Unlock()
	q.endAll(ended, err)
}

// front takes back, in order, what an extent of the chain did not take: it comes before all that was taken later.
func (q *queue) front(chunks []writer.Chunk) {
	q.mu.Lock()
	closed := q.mu.closed
	switch {
	case closed:
	case q.mu.feeding: // who feeds may be about to put one back that came after these
		q.mu.chain.rest = append(q.mu.chain.rest, chunks...)
	default:
		q.mu.waiting = append(chunks[:len(chunks):len(chunks)], q.mu.waiting...)
	}
	q.mu.Unlock()
	if closed {
		refuse(chunks, core.CodeDraining)
	}
}

// restLocked puts what an extent did not take before what waits.
func (q *queue) restLocked() {
	if rest := q.mu.chain.rest; len(rest) > 0 {
		q.mu.waiting = append(rest, q.mu.waiting...)
		q.mu.chain.rest = nil
	}
}
