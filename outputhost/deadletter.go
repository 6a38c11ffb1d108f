package outputhost

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// letters appends exhausted and rejected messages to the dead letter queues of their groups: durably there first, then acked
// here. One publisher serves a dead letter queue while it has work.
type letters struct {
	h  *Host
	mu struct {
		sync.Mutex
		publishers map[string]*letterbox // by path of the dead letter queue
	}
}

type letterbox struct {
	publisher *publish.Publisher
	cancel    context.CancelFunc
	used      time.Time
}

const (
	letterTimeout = 15 * time.Second // of appends that begin together
	letterRetry   = time.Second      // after a failed one
	letterWarning = 10 * time.Second // between warnings about one group
	letterIdle    = time.Minute      // an unused publisher is closed
)

func newLetters(h *Host) *letters {
	l := &letters{h: h}
	l.mu.publishers = make(map[string]*letterbox)
	return l
}

// bury takes one message; its outcome comes back to the share.
func (l *letters) bury(ctx context.Context, g *group, d dispatch.Dead) {
	record, err := l.letter(g, d)
	if err == nil {
		var p *publish.Publisher
		if p, err = l.publisher(core.DLQPath(g.queuePath, g.name)); err == nil {
			err = p.Append(ctx, record, letterTimeout, publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) { l.buried(g, d, err) }))
		}
	}
	if err != nil {
		l.buried(g, d, err)
	}
}

// letter is the message with its history.
func (l *letters) letter(g *group, d dispatch.Dead) (*wire.Record, error) {
	var r wire.Record
	if _, err := wire.DecodeRecord(d.Record, &r); err != nil {
		return nil, core.Errorf(core.CodeOf(err), "dead letter %d of extent %s: %w", d.Seq, d.Share.Extent(), err)
	}
	if r.FirstEnqueue == 0 {
		r.FirstEnqueue = d.Enqueued
	}
	if len(r.ReasonCode) > 0 {
		r.Extra = past(&r, d.Enqueued)
	}
	r.DeliverAt, r.Delay = 0, 0 // a dead letter is there at once
	if d.Failure == dispatch.Lapsed {
		r.ExpireAt = 0 // else nobody would get it from there
	}
	r.Attempts = uint16(min(uint32(r.Attempts)+uint32(d.Attempts), math.MaxUint16)) // of one that was a dead letter before: all of them
	r.Origin = core.Receipt{Extent: d.Share.Extent(), Seq: d.Seq}
	r.ReasonCode = []byte(d.Failure.String())
	r.Reason = []byte(d.Text)
	g.mu.Lock()
	r.LastConsumer = []byte(g.nameLocked(d.Session))
	g.mu.Unlock()
	return &r, nil
}

// past is the extra of a record that was a dead letter since then, was merged, and died again: with what it has to say of that life, if there is room.
func past(r *wire.Record, since int64) []byte {
	attempts := r.Attempts
	if before := wire.Lives(r.Extra); len(before) > 0 {
		attempts -= min(attempts, before[len(before)-1].Total)
	}
	extra := wire.AppendLife(r.Extra, wire.Life{Attempts: attempts, Total: r.Attempts, DeadSince: max(since, 0), ReasonCode: r.ReasonCode, Reason: r.Reason, LastConsumer: r.LastConsumer})
	const others = 4 << 10 // what the other attributes of bounded size take, and more
	if len(extra)+len(r.Headers)+len(r.Metadata) > wire.MaxAttributes-others {
		return r.Extra
	}
	return extra
}

// buried applies the outcome of an append, also to a share that was given up meanwhile: its buffers are released by it. An unknown one
// is tried again: a duplicate in the dead letter queue is possible, a loss is not.
func (l *letters) buried(g *group, d dispatch.Dead, err error) {
	now := l.h.deps.Now()
	g.mu.Lock()
	if err != nil {
		d.Share.DeadFailed(d.Seq, now.Add(letterRetry), now)
	} else {
		d.Share.DeadLettered(d.Seq, now)
	}
	g.mu.letterErr = err
	warn := err != nil && now.Sub(g.mu.warned) >= letterWarning
	if warn {
		g.mu.warned = now
	}
	g.mu.Unlock()
	switch {
	case warn:
		l.h.log.Warn("a dead letter could not be written yet", "queue", g.queuePath, "group", g.name, "seq", d.Seq, "err", err)
	case err == nil:
		l.h.metrics.deadLettered.Inc()
	}
	g.pump()
}

// publisher finds or makes the publisher for a dead letter queue and closes those that were not used for a while.
func (l *letters) publisher(path string) (*publish.Publisher, error) {
	now := l.h.deps.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, box := range l.mu.publishers {
		if p != path && now.Sub(box.used) > letterIdle {
			box.cancel()
			delete(l.mu.publishers, p)
		}
	}
	if box := l.mu.publishers[path]; box != nil {
		box.used = now
		return box.publisher, nil
	}
	box := &letterbox{used: now, publisher: publish.New(publish.Config{
		Queue: path, Client: string(l.h.deps.Members.Self().ID), Internal: true,
		Route: func(context.Context) ([]publish.Host, error) { return l.route() },
		Dial: func(ctx context.Context, h publish.Host) (*ws.Mux, error) {
			return l.h.deps.Peers.Link(ctx, h.Address, "/v1/publish")
		},
		Log: l.h.log,
	})}
	ctx, cancel := context.WithCancel(l.h.tasks.Context())
	box.cancel = cancel
	ok := l.h.tasks.Go(func(context.Context) {
		defer cancel()
		if err := box.publisher.Run(ctx); err != nil && ctx.Err() == nil {
			l.h.log.Warn("publisher of dead letters ended", "queue", path, "err", err)
		}
	})
	if !ok {
		cancel()
		return nil, core.Errorf(core.CodeDraining, "output host is stopping")
	}
	l.mu.publishers[path] = box
	return box.publisher, nil
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
