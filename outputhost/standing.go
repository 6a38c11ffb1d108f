package outputhost

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/outputhost/intake"
	"github.com/columbamq/columba/wire"
)

// held is a share that does not go on, and the message that holds it up.
type held struct {
	s        *share
	seq      core.Seq
	enqueued int64  // unix µs; of a message of the retry queue when it was published; 0: not known
	record   []byte // of one that was read for this
	lost     bool   // no store could be read
	waits    bool   // a message that is not due
}

// older orders by enqueue time, or when that is not known by the time the extent was made.
func (x *held) older(o *held) bool { return x.since() < o.since() }

func (x *held) since() int64 {
	if x.enqueued > 0 {
		return x.enqueued
	}
	return x.s.extent.ID.Time().UnixMicro()
}

// whyStuck names the oldest message that the group has not settled in its shares here, and why that is so.
func (g *group) whyStuck(ctx context.Context) (*pb.WhyStuckResponse, error) {
	unknown, err := g.lookForLengths(ctx)
	if err != nil {
		return nil, err
	}
	all := g.heldShares(unknown)
	g.readHeld(ctx, all)
	g.findDue(ctx, all)
	all = slices.DeleteFunc(all, func(x *held) bool { return x.waits })
	out := &pb.WhyStuckResponse{Queue: g.queuePath, Group: g.name, Extents: uint32(len(all))}
	var worst *held
	for _, x := range all {
		if worst == nil || x.older(worst) {
			worst = x
		}
	}
	if worst == nil {
		out.Reason, out.Text = string(stuck.Nothing), stuck.Nothing.Text()
		return out, nil
	}
	failed, saveErr := g.h.saver.failing()
	now := g.h.deps.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.viewLocked(worst, now)
	v.SaveFails = failed
	reasons := v.Reasons()
	out.Reason, out.Text = string(reasons[0]), reasons[0].Text()
	for _, r := range reasons[1:] {
		out.Also = append(out.Also, string(r))
	}
	switch reasons[0] {
	case stuck.NoReplica:
		out.Detail = errorText(worst.s.trouble)
	case stuck.DLQNotWritable:
		out.Detail = errorText(g.outbox.Err(dispatch.DeadLetterQueue))
	case stuck.RetryNotWritable:
		out.Detail = errorText(g.outbox.Err(dispatch.RetryQueue))
	case stuck.CheckpointNotSaved:
		out.Detail = errorText(saveErr)
	}
	if v.Standing.Record == nil {
		v.Standing.Record = worst.record
	}
	out.Message = worst.s.standingLocked(v.Standing)
	if out.Message.Enqueued == nil && worst.enqueued > 0 {
		out.Message.Enqueued = unixMicro(worst.enqueued)
	}
	return out, nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// heldShares are those with something that is not settled, as far as is known.
func (g *group) heldShares(unknown map[*share]bool) (all []*held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.orderedLocked() {
		st := s.rules.Blocking()
		if s.retired || st.Place == dispatch.PlaceUnread && st.Seq > s.last && !unknown[s] {
			continue
		}
		if s.timers() && st.Place == dispatch.PlaceUnread && s.reader != nil && s.reader.told && !s.reader.more { // all that is due was read
			continue
		}
		all = append(all, &held{s: s, seq: st.Seq, enqueued: s.firstEnqueued(st.Enqueued, st.Record), lost: unknown[s]})
	}
	return all
}

// firstEnqueued is when a message was published, unix µs, that was appended to the share's extent then: the record of a parked message knows better.
func (s *share) firstEnqueued(enqueued int64, record []byte) int64 {
	var r wire.Record
	if record == nil || !s.rules.IsReturning() {
		return enqueued
	}
	if _, err := wire.DecodeRecord(record, &r); err != nil || r.FirstEnqueue == 0 {
		return enqueued
	}
	return r.FirstEnqueue
}

// dueOf is when a record may be delivered at the earliest; zero when it does not say.
func dueOf(record []byte) time.Time {
	var r wire.Record
	if _, err := wire.DecodeRecord(record, &r); err != nil || r.DeliverAt == 0 {
		return time.Time{}
	}
	return time.UnixMilli(r.DeliverAt)
}

// readHeld reads the messages that are not in memory, of the oldest shares.
func (g *group) readHeld(ctx context.Context, all []*held) {
	var calls errgroup.Group
	calls.SetLimit(lookAtOnce)
	left := ownTimes
	for _, x := range all {
		if x.enqueued > 0 || x.lost {
			continue
		}
		if left--; left < 0 {
			break
		}
		calls.Go(func() error {
			enqueued, record, err := g.readOne(ctx, x.s, x.seq)
			x.enqueued, x.record, x.lost = x.s.firstEnqueued(enqueued, record), record, err != nil
			x.waits = x.s.timers() && dueOf(record).After(g.h.deps.Now())
			if err != nil {
				g.mu.Lock()
				x.s.trouble = err
				g.mu.Unlock()
			}
			return nil
		})
	}
	calls.Wait() // no function fails
}

// findDue looks in extents that no reader reads for a due message behind the first one, which is not due: extents are in the order of publishing.
func (g *group) findDue(ctx context.Context, all []*held) {
	now := g.h.deps.Now()
	var asleep []*timersAsleep
	var again []*held
	g.mu.Lock()
	for _, x := range all {
		if x.waits && x.s.asleepLocked() {
			asleep = append(asleep, &timersAsleep{s: x.s, known: x.s.knownLocked(), upTo: x.s.lastOwedLocked()})
			again = append(again, x)
		}
	}
	g.mu.Unlock()
	if len(asleep) == 0 {
		return
	}
	g.countDue(ctx, asleep, now)
	var found []*held
	for i, x := range again {
		if asleep[i].due > 0 && asleep[i].first > 0 {
			x.seq, x.enqueued, x.record = asleep[i].first, 0, nil
			found = append(found, x)
		}
	}
	g.readHeld(ctx, found)
}

// readOne reads a message of a share from a store.
func (g *group) readOne(ctx context.Context, s *share, seq core.Seq) (enqueued int64, record []byte, err error) {
	now := g.h.deps.Now()
	g.mu.Lock()
	stores, last := s.sourcesLocked(now), max(s.last, seq)
	g.mu.Unlock()
	batches, err := g.h.readRange(ctx, stores, s.extent.ID, seq, last, 1) // one batch, however large
	if err != nil {
		return 0, nil, err
	}
	if len(batches) == 0 {
		return 0, nil, core.Errorf(core.CodeUnavailable, "no store of extent %s is there", s.extent.ID)
	}
	batch, _, _, err := intake.Batch(batches)
	if err != nil {
		return 0, nil, err
	}
	err = eachRecord(batch.Records, batch.Base, func(at core.Seq, r []byte) error {
		if at == seq {
			record = r
		}
		return nil
	})
	return batch.AppendTime, record, err
}

// standingLocked is where the message stands. One that nobody reads here, as nobody consumes, may be kept back by the group's delay all the same.
func (x *held) standingLocked(now time.Time) dispatch.Standing {
	st := x.s.rules.Standing(x.seq)
	if st.Place == dispatch.PlaceUnread && x.enqueued > 0 && !x.s.timers() && x.s.rules.KeepsBack(x.enqueued, now) {
		st.Place, st.Enqueued = dispatch.PlaceDelayed, x.enqueued
		st.Until = time.UnixMicro(x.enqueued).Add(x.s.group.mu.record.Spec.Delay)
	}
	return st
}

// viewLocked is what this host sees of the share.
func (g *group) viewLocked(x *held, now time.Time) stuck.View {
	s, depth := x.s, g.mu.rules.Depth()
	v := stuck.View{
		Standing: x.standingLocked(now),
		Takers:   len(g.mu.consumers) + len(g.mu.pulls), Credit: len(g.mu.pulls), Waiting: g.mu.rules.Ready(),
		Full: s.rules.Full(), AtLimit: s.rules.AtLimit(), ChainWaits: s.rules.Waits(),
		MemoryFull: g.h.memory.Room(s.rules.HeldBatches()) == 0, Unreadable: x.lost || s.failing() || len(s.sourcesLocked(now)) == 0,
		Lapsed: !g.h.lease.Holds(now), DLQFails: depth.Dying > 0 && g.outbox.Err(dispatch.DeadLetterQueue) != nil, ParkFails: depth.Parked > 0 && g.outbox.Err(dispatch.RetryQueue) != nil,
	}
	_, v.Stalled = g.mu.rules.Stalled()
	v.Throttled = true
	if g.h.elapsed(now)-g.mu.pulled < pullAgain {
		v.Takers, v.Credit = v.Takers+1, v.Credit+1
	}
	if v.Credit > 0 {
		v.Throttled = g.mu.rules.Throttled(pullSession)
	}
	most := g.mostHeldLocked()
	for _, c := range g.mu.consumers {
		if c.credit.messages > 0 && c.credit.bytes > 0 && !c.s.mux.Conn.Full() && g.mayHoldLocked(c, most) > 0 {
			v.Credit++
			v.Throttled = v.Throttled && g.mu.rules.Throttled(c.id)
		}
	}
	v.Throttled = v.Throttled && v.Credit > 0
	return v
}

// standing is where a message stands in a share of this host; CodeMoved when there is no such share.
func (g *group) standing(at core.Receipt) (*pb.Standing, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.shares[at.Extent]
	if s == nil {
		return nil, core.Errorf(core.CodeMoved, "extent %s is not served by this host now; try again", at.Extent)
	}
	return s.standingLocked(s.rules.Standing(at.Seq)), nil
}

// standingLocked is a standing as users see it.
func (s *share) standingLocked(st dispatch.Standing) *pb.Standing {
	g := s.group
	out := &pb.Standing{
		State: words.StateOf(st.Place), Receipt: core.Receipt{Extent: s.extent.ID, Seq: st.Seq}.String(), Attempts: int32(st.Attempts),
		LastFailure: st.Failure.String(), LastError: valid([]byte(st.Text)), Owner: string(g.h.deps.Members.Self().ID),
	}
	if st.Record != nil {
		s.addRecord(out, st.Record)
	}
	if enqueued := s.firstEnqueued(st.Enqueued, st.Record); enqueued > 0 {
		out.Enqueued = unixMicro(enqueued)
	}
	if !st.Until.IsZero() {
		out.Until = convert.Time(st.Until)
	}
	if st.Place == dispatch.PlaceInFlight {
		out.Holder = g.holderLocked(st)
	}
	return out
}

// addRecord adds what the record of a message says of it: its id, and of a parked message how its last attempt ended, unless that is known already.
func (s *share) addRecord(out *pb.Standing, record []byte) {
	var r wire.Record
	if _, err := wire.DecodeRecord(record, &r); err != nil {
		return
	}
	if !r.ID.IsZero() {
		out.Id = r.ID.String()
	}
	if !s.rules.IsReturning() {
		return
	}
	if out.Attempts == 0 { // those of a life before, which ended in the dead letter queue, are not of this one
		out.Attempts = int32(r.Attempts - min(r.Attempts, wire.ReadPast(r.Extra).Settled))
	}
	if out.LastFailure == "" {
		out.LastFailure, out.LastError = valid(r.ReasonCode), valid(r.Reason)
	}
}

// holderLocked is who has a message in flight.
func (g *group) holderLocked(st dispatch.Standing) *pb.Holder {
	h := &pb.Holder{Since: convert.Time(st.Since), Session: uint32(st.Session)}
	if st.Session == 0 {
		return h
	}
	h.Consumer, h.Host = g.nameLocked(st.Session), string(g.h.deps.Members.Self().ID)
	for _, c := range g.mu.consumers {
		if c.id == st.Session {
			h.Address, h.Connected = c.s.mux.Conn.RemoteAddr(), convert.Time(c.joined)
		}
	}
	return h
}
