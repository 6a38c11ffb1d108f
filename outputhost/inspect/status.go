package inspect

import (
	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/wire"
)

// Status is the status of a message in a share of this host; CodeMoved when there is no such share.
func (x *Inspector) Status(g Group, at core.Receipt) (*pb.Standing, error) {
	g.Lock()
	defer g.Unlock()
	s := g.Share(at.Extent)
	if s == nil {
		return nil, core.Errorf(core.CodeMoved, "extent %s is not served by this host now; try again", at.Extent)
	}
	return x.status(g, s, s.Rules().Standing(at.Seq)), nil
}

// status is the status of a message as users see it.
func (x *Inspector) status(g Group, s Share, st dispatch.Standing) *pb.Standing {
	out := &pb.Standing{
		State: words.StateOf(st.Place), Receipt: core.Receipt{Extent: s.Extent().ID, Seq: st.Seq}.String(), Attempts: int32(st.Attempts),
		LastFailure: st.Failure.String(), LastError: ValidText([]byte(st.Text)), Owner: string(x.host.Self().ID),
	}
	if st.Record != nil {
		addRecord(out, s, st.Record)
	}
	if enqueued := firstEnqueued(s, st.Enqueued, st.Record); enqueued > 0 {
		out.Enqueued = unixMicro(enqueued)
	}
	if !st.Until.IsZero() {
		out.Until = convert.Time(st.Until)
	}
	if st.Place == dispatch.PlaceInFlight {
		out.Holder = g.Holder(st)
	}
	return out
}

// addRecord adds what the record of a message says of it: its id, and of a message of a retry queue how its last attempt ended,
// unless that is known already.
func addRecord(out *pb.Standing, s Share, record []byte) {
	var r wire.Record
	if _, err := wire.DecodeRecord(record, &r); err != nil {
		return
	}
	if !r.ID.IsZero() {
		out.Id = r.ID.String()
	}
	if !s.Rules().IsReturning() {
		return
	}
	if out.Attempts == 0 { // those of a life before, which ended in the dead letter queue, are not of this one
		out.Attempts = int32(r.Attempts - min(r.Attempts, wire.ReadHistory(r.Extra).Settled))
	}
	if out.LastFailure == "" {
		out.LastFailure, out.LastError = ValidText(r.ReasonCode), ValidText(r.Reason)
	}
}
