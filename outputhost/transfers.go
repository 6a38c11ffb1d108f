package outputhost

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/transfer"
	"github.com/columbamq/columba/wire/ws"
)

func newMover(h *Host) *transfer.Mover {
	return transfer.New(transfer.Config{
		Meta: h.deps.Meta, Reader: h.inspector, Tasks: h.tasks, Client: string(h.deps.Members.Self().ID), Now: h.deps.Now, Log: h.log,
		Hosts: func() (out []publish.Host) {
			for _, m := range h.deps.Members.Hosts("inputhost") {
				out = append(out, publish.Host{ID: m.ID, Address: m.Address})
			}
			return out
		},
		Dial: func(ctx context.Context, to publish.Host) (*ws.Mux, error) {
			return h.deps.Peers.Link(ctx, to.Address, "/v1/publish")
		},
		Moved: func(to dispatch.Destination) {
			if to == dispatch.RetryQueue {
				h.metrics.retryQueued.Inc()
			} else {
				h.metrics.deadLettered.Inc()
			}
		},
	})
}

// leaver is a group as transfers know it.
type leaver struct{ g *group }

// Record implements transfer.Group, like the methods below.
func (l leaver) Record() metadata.GroupRecord {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return l.g.mu.record
}

func (l leaver) Sender(session dispatch.SessionID) (consumer string, epoch uint64) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return l.g.nameLocked(session), l.g.mu.record.Epoch
}

func (l leaver) Owns(t dispatch.Transfer) (since time.Time, owns bool) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	s := shareOf(t.Share)
	if s != nil && s.announced != 0 {
		since = time.Unix(0, s.announced)
	}
	return since, s != nil
}

func (l leaver) Settle(t dispatch.Transfer, err error, retryAt, now time.Time) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if err != nil {
		t.Share.TransferFailed(t.Seq, core.CodeOf(err) == core.CodeUnknown, retryAt, now)
		return
	}
	t.Share.Transferred(t.Seq, now)
	if s := shareOf(t.Share); s != nil {
		s.settled += int32(l.g.h.cfg.CheckpointAcks) // until that is saved the message pins its extent, and a crash has it looked for
	}
}

func (l leaver) Pump() {
	l.g.pump()
	if l.g.h.draining.Load() {
		poke(l.g.h.transferred)
	}
}

func (l leaver) Outbox() *transfer.Outbox { return &l.g.outbox }
