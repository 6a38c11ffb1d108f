package inspect

import (
	"context"
	"math"
	"slices"
	"strings"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/wire"
)

// Limits of one ListWaiting, since the group is locked meanwhile.
const (
	waitingScan  = 20_000  // messages that are looked at
	waitingBytes = 1 << 20 // attributes of the messages that are answered, but for those of the last one
)

// ListWaiting lists the delayed messages that the group's shares on this host hold, in the order of their receipts:
// those that wait in memory after a failed attempt, those on their way to the retry queue, and those that were read and
// wait for the group's delay.
func (x *Inspector) ListWaiting(ctx context.Context, req *pb.ListWaitingRequest) (*pb.ListWaitingResponse, error) {
	g, release, err := x.host.Group(ctx, req.Queue, req.Group)
	if err != nil {
		return nil, err
	}
	defer release()
	_, after, limit, err := x.page(ctx, req.Queue, req.After, req.Limit)
	if err != nil {
		return nil, err
	}
	g.Lock()
	defer g.Unlock()
	out, scanned, bytes := &pb.ListWaitingResponse{}, 0, 0
	byID := func(a, b Share) int { return strings.Compare(a.Extent().ID.String(), b.Extent().ID.String()) }
	for _, s := range slices.SortedFunc(slices.Values(g.Shares()), byID) {
		order := strings.Compare(s.Extent().ID.String(), after.Extent.String())
		if order < 0 || order == 0 && after.Seq == math.MaxUint64 || s.Reading().Retired {
			continue
		}
		first := s.Rules().Blocking().Seq
		if order == 0 {
			first = max(first, after.Seq+1)
		}
		for seq := first; seq <= lastHeld(s); seq++ {
			if scanned == waitingScan || bytes >= waitingBytes || len(out.Messages) == limit {
				out.Next = core.Receipt{Extent: s.Extent().ID, Seq: seq - 1}.String()
				return out, nil
			}
			scanned++
			if m, size := x.waiting(g, s, seq); m != nil {
				out.Messages = append(out.Messages, m)
				bytes += size
			}
		}
	}
	return out, nil
}

// lastHeld is the last message that the share may hold. Those of a timer extent were not read in the order of
// seqs; of a log, what was restored lies at most a full share beyond what was read.
func lastHeld(s Share) core.Seq {
	if timers(s) {
		return s.Last()
	}
	return min(s.Last(), s.Rules().ReadFrom()+dispatch.MaxOutstanding)
}

// waiting is a message that waits for its time after it was read, and how many bytes its attributes have; nil for any
// other.
func (x *Inspector) waiting(g Group, s Share, seq core.Seq) (m *pb.DelayedMessage, size int) {
	st := s.Rules().Standing(seq)
	if words.StateOf(st.Place) != words.Delayed || st.Until.IsZero() {
		return nil, 0
	}
	status := x.status(g, s, st)
	m = &pb.DelayedMessage{
		Id: status.Id, Receipt: status.Receipt, Source: words.SourceRetry, Due: status.Until, Enqueued: status.Enqueued,
		Attempts: status.Attempts, Reason: status.LastFailure, Error: status.LastError,
	}
	if status.Attempts == 0 {
		m.Source = words.SourceGroup
	}
	var r wire.Record
	if st.Record == nil {
		return m, 0
	}
	if _, err := wire.DecodeRecord(st.Record, &r); err != nil {
		return m, 0
	}
	r.Payload = nil // it is not answered, and may be large
	message, err := recordMessage(&r)
	if err != nil {
		return m, 0
	}
	if s.Rules().IsReturning() {
		m.Origin = r.Origin.String()
	}
	message.Payload, message.DeliverAt = nil, nil
	m.Message = message
	return m, r.AttributesLen()
}
