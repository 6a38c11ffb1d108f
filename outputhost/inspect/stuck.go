package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/wire"
)

// blocked is a share that does not go on, and the message that blocks it.
type blocked struct {
	s        Share
	seq      core.Seq
	enqueued int64  // unix µs; of a message of the retry queue when it was published; 0: not known
	record   []byte // of one that was read for this
	read     bool   // a store answered just now, whatever happened to the reads before
	lost     bool   // no store could be read
	waits    bool   // a message that is not due
}

// since is when the message was enqueued, or when that is not known the extent made, unix µs.
func (b *blocked) since() int64 {
	if b.enqueued > 0 {
		return b.enqueued
	}
	return b.s.Extent().ID.Time().UnixMicro()
}

// WhyStuck names the oldest message that the group has not settled in its shares here, and the reasons.
func (x *Inspector) WhyStuck(ctx context.Context, g Group) (*pb.WhyStuckResponse, error) {
	unknown, err := x.updateLengths(ctx, g)
	if err != nil {
		return nil, err
	}
	all := blockedShares(g, unknown)
	x.readBlocked(ctx, g, all)
	x.findDue(ctx, g, all)
	all = slices.DeleteFunc(all, func(b *blocked) bool { return b.waits })
	out := &pb.WhyStuckResponse{Queue: g.Queue(), Group: g.Name(), Extents: uint32(len(all))}
	if len(all) == 0 {
		out.Reason, out.Text = string(stuck.Nothing), stuck.Nothing.Text()
		return out, nil
	}
	worst := slices.MinFunc(all, func(a, b *blocked) int { return cmp.Compare(a.since(), b.since()) })
	failed, saveErr := x.host.SaveFailure()
	now := x.host.Now()
	g.Lock()
	defer g.Unlock()
	v := view(g, worst, now)
	if err := worst.s.ClaimError(); err != nil { // its messages wait for it, though checkpoints are saved
		failed, saveErr = true, err
	}
	v.SaveFails = failed
	reasons := v.Reasons()
	out.Reason, out.Text = string(reasons[0]), reasons[0].Text()
	for _, r := range reasons[1:] {
		out.Also = append(out.Also, string(r))
	}
	switch reasons[0] {
	case stuck.LeaseExpired:
		out.Detail = fmt.Sprintf("the shares of the group are listed by controller %s", worst.s.Lister())
	case stuck.NoReplica:
		out.Detail = errorText(worst.s.Trouble())
	case stuck.DLQNotWritable:
		out.Detail = errorText(g.TransferError(dispatch.DeadLetterQueue))
	case stuck.RetryNotWritable:
		out.Detail = errorText(g.TransferError(dispatch.RetryQueue))
	case stuck.CheckpointNotSaved:
		out.Detail = errorText(saveErr)
	}
	if out.Detail == "" && slices.Contains(reasons, stuck.RetryLimit) {
		l := g.Rules().RetryLimit()
		out.Detail = fmt.Sprintf("the limit is %d; the group has about %d retries, and %d messages are in flight for the first time, each of which may become one", l.Most, l.Retries, l.Firsts)
	}
	addUnreadable(out, all, now)
	if v.Standing.Record == nil {
		v.Standing.Record = worst.record
	}
	out.Message = x.status(g, worst.s, v.Standing)
	if out.Message.Enqueued == nil && worst.enqueued > 0 {
		out.Message.Enqueued = unixMicro(worst.enqueued)
	}
	return out, nil
}

// addUnreadable adds that messages behind the oldest one cannot be read from any store.
func addUnreadable(out *pb.WhyStuckResponse, all []*blocked, now time.Time) {
	word := string(stuck.NoReplica)
	if out.Reason == word {
		return
	}
	for _, b := range all {
		if !b.unreadable(b.s.View(now)) {
			continue
		}
		if !slices.Contains(out.Also, word) {
			out.Also = append(out.Also, word)
		}
		if err := b.s.Trouble(); out.Detail == "" && err != nil {
			out.Detail = fmt.Sprintf("extent %s: %v", b.s.Extent().ID, err)
		}
		return
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// blockedShares are the shares with messages that are not settled, as far as known.
func blockedShares(g Group, unknown map[Share]bool) (all []*blocked) {
	g.Lock()
	defer g.Unlock()
	for _, s := range g.Shares() {
		st, r := s.Rules().Blocking(), s.Reading()
		if r.Retired || st.Place == dispatch.PlaceUnread && st.Seq > s.Last() && !unknown[s] {
			continue
		}
		if timers(s) && st.Place == dispatch.PlaceUnread && r.Open && r.Told && !r.More { // all due messages were read
			continue
		}
		all = append(all, &blocked{s: s, seq: st.Seq, enqueued: firstEnqueued(s, st.Enqueued, st.Record), lost: unknown[s]})
	}
	return all
}

// firstEnqueued is when a message was published, unix µs, that was appended to the share's extent then: the record of a
// message in the retry queue knows better.
func firstEnqueued(s Share, enqueued int64, record []byte) int64 {
	var r wire.Record
	if record == nil || !s.Rules().IsReturning() {
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

// readBlocked reads the messages that are not in memory, of the oldest shares.
func (x *Inspector) readBlocked(ctx context.Context, g Group, all []*blocked) {
	all = slices.DeleteFunc(slices.Clone(all), func(b *blocked) bool { return b.enqueued > 0 || b.lost })
	ctx, cancel := partOf(ctx)
	defer cancel()
	lifecycle.Each(lookAtOnce, all[:min(ownTimes, len(all))], func(_ int, b *blocked) {
		enqueued, record, err := x.readOne(ctx, g, b.s, b.seq)
		g.Lock()
		defer g.Unlock()
		b.enqueued, b.record = firstEnqueued(b.s, enqueued, record), record
		b.read, b.lost = err == nil, err != nil
		b.waits = timers(b.s) && dueOf(record).After(x.host.Now())
		if err != nil {
			b.s.Failed(err)
		}
	})
}

// findDue looks in extents that no reader reads for a due message behind the first one, which is not due: extents are
// in the order of publishing.
func (x *Inspector) findDue(ctx context.Context, g Group, all []*blocked) {
	now := x.host.Now()
	var asleep []*timersAsleep
	var again []*blocked
	g.Lock()
	for _, b := range all {
		if b.waits && asleepShare(b.s) {
			asleep = append(asleep, &timersAsleep{s: b.s, known: b.s.Known(), upTo: b.s.LastOwed()})
			again = append(again, b)
		}
	}
	g.Unlock()
	if len(asleep) == 0 {
		return
	}
	x.countDue(ctx, g, asleep, now)
	var found []*blocked
	for i, b := range again {
		if asleep[i].due > 0 && asleep[i].first > 0 {
			b.seq, b.enqueued, b.record = asleep[i].first, 0, nil
			found = append(found, b)
		}
	}
	x.readBlocked(ctx, g, found)
}

// readOne reads a message of a share from a store.
func (x *Inspector) readOne(ctx context.Context, g Group, s Share, seq core.Seq) (enqueued int64, record []byte, err error) {
	now := x.host.Now()
	g.Lock()
	id, stores, last := s.Extent().ID, s.Stores(now), max(s.Last(), seq)
	g.Unlock()
	batches, err := x.readRange(ctx, stores, id, seq, last, 1) // one batch, however large
	if err != nil {
		return 0, nil, err
	}
	if len(batches) == 0 {
		return 0, nil, core.Errorf(core.CodeUnavailable, "no store of extent %s is there", id)
	}
	batch, _, err := nextBatch(batches)
	if err != nil {
		return 0, nil, err
	}
	err = EachRecord(batch.Records, batch.Base, func(at core.Seq, r []byte) error {
		if at == seq {
			record = r
		}
		return nil
	})
	return batch.AppendTime, record, err
}

// status of the message. One that is not read here, since nobody consumes, may wait for the group's delay all the same.
func (b *blocked) status(g Group, now time.Time) dispatch.Standing {
	st := b.s.Rules().Standing(b.seq)
	if st.Place == dispatch.PlaceUnread && b.enqueued > 0 && !timers(b.s) && b.s.Rules().KeepsBack(b.enqueued, now) {
		st.Place, st.Enqueued = dispatch.PlaceDelayed, b.enqueued
		st.Until = time.UnixMicro(b.enqueued).Add(g.Delay())
	}
	return st
}

// unreadable reports whether no store of the share can be read. The failures that v counts may be old, since nothing
// reads for a group without consumers.
func (b *blocked) unreadable(v stuck.View) bool { return b.lost || v.Unreadable && !b.read }

// view is what this host sees of the share.
func view(g Group, b *blocked, now time.Time) stuck.View {
	depth, takers := g.Rules().Depth(), g.Takers(now)
	v := b.s.View(now)
	v.Standing = b.status(g, now)
	v.Takers, v.Credit, v.Throttled = takers.All, takers.Credit, takers.Throttled
	v.Waiting = g.Rules().Ready()
	v.Unreadable = b.unreadable(v)
	v.DLQFails = depth.DeadLettering > 0 && g.TransferError(dispatch.DeadLetterQueue) != nil
	v.RetryQueueFails = depth.RetryQueueing > 0 && g.TransferError(dispatch.RetryQueue) != nil
	state, _ := g.Rules().Breaker()
	v.BreakerOpen = state != dispatch.BreakerClosed
	v.RetryLimit = g.Rules().RetryLimit().Reached
	return v
}
