package outputhost

import (
	"context"
	"maps"
	"slices"
	"strings"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/words"
)

// waitingScan bounds the messages that one listWaiting looks at, since it keeps the group locked meanwhile.
const waitingScan = 20_000

// listWaiting lists the delayed messages that the group's shares on this host hold, in the order of their receipts:
// those that wait in memory after a failed attempt, those on their way to the retry queue, and those that were read and
// wait for the group's delay.
func (h *Host) listWaiting(ctx context.Context, req *pb.ListWaitingRequest) (*pb.ListWaitingResponse, error) {
	g, err := h.lookUp(ctx, req.Queue, req.Group)
	if err != nil {
		return nil, err
	}
	defer g.release()
	_, after, limit, err := h.page(ctx, req.Queue, req.After, req.Limit)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out, scanned := &pb.ListWaitingResponse{}, 0
	byID := func(a, b *share) int { return strings.Compare(a.extent.ID.String(), b.extent.ID.String()) }
	for _, s := range slices.SortedFunc(maps.Values(g.mu.shares), byID) {
		order := strings.Compare(s.extent.ID.String(), after.Extent.String())
		if order < 0 || s.retired {
			continue
		}
		first := s.rules.Blocking().Seq
		if order == 0 {
			first = max(first, after.Seq+1)
		}
		for seq := first; seq <= s.lastHeldLocked(); seq++ {
			if scanned == waitingScan || len(out.Messages) == limit {
				out.Next = core.Receipt{Extent: s.extent.ID, Seq: seq - 1}.String()
				return out, nil
			}
			scanned++
			if m := s.waitingLocked(seq); m != nil {
				out.Messages = append(out.Messages, m)
			}
		}
	}
	return out, nil
}

// lastHeldLocked is the last message that the share may hold. Those of a timer extent were not read in the order of
// seqs; of a log, what was restored lies at most a full share beyond what was read.
func (s *share) lastHeldLocked() core.Seq {
	if s.timers() {
		return s.last
	}
	return min(s.last, s.rules.ReadFrom()+dispatch.MaxOutstanding)
}

// waitingLocked is a message that waits for its time after it was read; nil for any other.
func (s *share) waitingLocked(seq core.Seq) *pb.DelayedMessage {
	st := s.rules.Standing(seq)
	if words.StateOf(st.Place) != words.Delayed || st.Until.IsZero() {
		return nil
	}
	x := s.standingLocked(st)
	m := &pb.DelayedMessage{
		Id: x.Id, Receipt: x.Receipt, Source: words.SourceRetry, Due: x.Until, Enqueued: x.Enqueued, Attempts: x.Attempts, Reason: x.LastFailure, Error: x.LastError,
	}
	if x.Attempts == 0 {
		m.Source = words.SourceGroup
	}
	if st.Record == nil {
		return m
	}
	message, r, err := messageOf(st.Record)
	if err != nil {
		return m
	}
	if s.rules.IsReturning() {
		m.Origin = r.Origin.String()
	}
	message.Payload, message.DeliverAt = nil, nil
	m.Message = message
	return m
}
