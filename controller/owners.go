package controller

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	// rowsAtOnce bounds one write of assignments.
	rowsAtOnce = 256
	// removalsAtOnce bounds the removals of old rows that run side by side.
	removalsAtOnce = 8
)

// giveOwners gives the pending shares of these queues to the output hosts that should have them; rows are written only where the owner
// changes, before anybody is told. It answers the decisions that were superseded.
func (h *Host) giveOwners(ctx context.Context, queues []core.QueueID) (superseded []metadata.AssignmentRecord, err error) {
	outputs, runs := h.candidates("outputhost")
	if len(outputs) == 0 {
		return nil, nil
	}
	now := h.deps.now()
	var changes []metadata.AssignmentRecord
	for _, queue := range queues {
		q := h.shares.queues[queue]
		if q == nil {
			continue
		}
		for _, g := range q.groups {
			changes = append(changes, h.giveChain(g, outputs, runs)...)
			for id, e := range g.pending {
				if e.Chain > 0 {
					continue
				}
				old := h.shares.owner(share{g.ID, id})
				owner, _ := placement.Owner(h.ownedBy(g, e), outputs)
				if old.Owner == owner && old.Run == runs[owner] || h.stays(old, now) {
					continue
				}
				changes = append(changes, metadata.AssignmentRecord{
					Group: g.ID, Queue: queue, Name: g.Spec.Name, Extent: e,
					Counter: g.nextCounter(old), By: h.deps.Members.Self().ID, Owner: owner, Run: runs[owner],
				})
			}
		}
	}
	well := func(host core.HostID, run core.RunID) bool { return h.hosts.fate(host, run, now) == alive }
	for len(changes) > 0 {
		n := wholeChains(changes, min(len(changes), rowsAtOnce))
		if err := h.writeAssignments(ctx, changes[:n]); err != nil {
			return superseded, core.Errorf(core.CodeOf(err), "write %d assignments: %w", n, err)
		}
		for _, old := range h.shares.setAll(changes[:n], well, now) {
			if old.Counter > 0 {
				superseded = append(superseded, old)
			}
		}
		changes = changes[n:]
	}
	return superseded, nil
}

// ownedBy is by what a share gets its owner: those of a retry queue's extents have one, who knows two copies of a message for what they are.
func (h *Host) ownedBy(g *groupShares, e core.Extent) string {
	if h.isRetry(e.ID) {
		return g.ID.String() + e.Queue.String()
	}
	return g.ID.String() + e.ID.String()
}

// nextCounter is that of the decision after old. Shares come back with a rewind: then it is above all of the epochs before, whose rows may still
// be on their way out.
func (g *groupShares) nextCounter(old metadata.AssignmentRecord) uint64 {
	const perEpoch = 1 << 32
	return max(old.Counter, g.Epoch*perEpoch) + 1
}

func (h *Host) writeAssignments(ctx context.Context, rs []metadata.AssignmentRecord) error {
	now := h.deps.now()
	rows := make([]metadata.Row, len(rs))
	for i, r := range rs {
		var err error
		if rows[i], err = metadata.NewRow(metadata.Assignments, metadata.AssignmentKey(r.Group, r.Extent.ID, r.Counter, r.By), r, now); err != nil {
			return err
		}
	}
	return h.deps.Meta.PutAll(ctx, metadata.Assignments, rows, metadata.One)
}

// forget removes the rows of decisions that count no more, beside the rounds. One that stays behind is found with its group.
func (h *Host) forget(rs []metadata.AssignmentRecord) {
	if len(rs) == 0 {
		return
	}
	h.tasks.Go(func(ctx context.Context) {
		var g errgroup.Group
		g.SetLimit(removalsAtOnce)
		for _, r := range rs {
			g.Go(func() error {
				key := metadata.AssignmentKey(r.Group, r.Extent.ID, r.Counter, r.By)
				err := h.deps.Meta.Remove(ctx, metadata.Assignments, key, h.deps.now(), metadata.One)
				if err != nil && ctx.Err() == nil {
					h.log.Info("an old assignment stays behind", "extent", r.Extent.ID, "group", r.Name, "err", err)
				}
				return nil
			})
		}
		g.Wait()
	})
}

// push sends its list to every output host that has not confirmed it, side by side. One that does not answer gets it with the next
// round.
func (h *Host) push() {
	if !h.shares.isComplete() {
		return
	}
	for _, m := range h.hosts.live("outputhost") {
		if h.shares.startPush(m) && !h.tasks.Go(func(ctx context.Context) { h.pushTo(ctx, m) }) {
			h.shares.endPush(m, 0)
		}
	}
}

const (
	// longPush is from when on the pushes to a host have pauses, of pushPause times as long as the push took: a list of tens of thousands of shares takes half a second,
	// and would be sent whole for each change of one share.
	longPush  = 20 * time.Millisecond
	pushPause = 4
	// maxPushPause bounds for how long a change can wait.
	maxPushPause = time.Second
)

// pushTo sends until what was sent is the newest, or a call fails. Changes during the pause after a long list are sent
// together.
func (h *Host) pushTo(ctx context.Context, m membership.Host) {
	for {
		began := h.deps.now()
		list := h.listOf(m.ID, m.Run)
		cctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
		_, err := h.deps.Peers.Output(m.Address).Assign(cctx, connect.NewRequest(list))
		cancel()
		if err != nil {
			h.log.Debug("an output host did not take its list", "host", m.ID, "err", convert.FromRPC(err))
			list.Version = 0
		}
		if took := h.deps.now().Sub(began); err == nil && took > longPush {
			h.shares.confirmed(m, list.Version)
			if h.shares.endMoves(h.deps.now()) {
				h.push()
			}
			select {
			case <-time.After(min(pushPause*took, maxPushPause)):
			case <-ctx.Done():
			}
		}
		newest := h.shares.endPush(m, list.Version)
		if h.shares.endMoves(h.deps.now()) {
			h.push()
		}
		if newest || err != nil || ctx.Err() != nil {
			return
		}
	}
}

// startPush says whether a host needs its list and is not being sent it already.
func (s *shares) startPush(m membership.Host) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.pushed[m.ID]
	if p.busy || p.run == m.Run && p.version == max(s.mu.versions[m.ID], s.mu.base) {
		return false
	}
	p.busy = true
	s.mu.pushed[m.ID] = p
	return true
}

// confirmed notes what a host confirmed; the push is still under way.
func (s *shares) confirmed(m membership.Host, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.pushed[m.ID] = pushed{run: m.Run, version: version, busy: true}
}

// endPush notes what a host confirmed, 0 for nothing; it reports whether that is the newest. If not, the push is still under way.
func (s *shares) endPush(m membership.Host, version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := version == max(s.mu.versions[m.ID], s.mu.base)
	s.mu.pushed[m.ID] = pushed{run: m.Run, version: version, busy: !newest && version != 0}
	return newest
}
