package inspect

import (
	"strings"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/wire"
)

// EachRecord calls f for every record of a run.
func EachRecord(records []byte, base core.Seq, f func(seq core.Seq, record []byte) error) error {
	for seq := base; len(records) > 0; seq++ {
		record, rest, err := wire.NextRecord(records)
		if err != nil {
			return err
		}
		if err := f(seq, record); err != nil {
			return err
		}
		records = rest
	}
	return nil
}

// Message copies a record into the form of the unary API; r is what there is besides, it aliases the record.
func Message(record []byte) (m *pb.Message, r wire.Record, err error) {
	if _, err := wire.DecodeRecord(record, &r); err != nil {
		return nil, r, err
	}
	m, err = recordMessage(&r)
	return m, r, err
}

func recordMessage(r *wire.Record) (*pb.Message, error) {
	m := &pb.Message{Payload: append([]byte{}, r.Payload...), Key: validText(r.Key), TraceParent: validText(r.TraceParent)}
	if !r.ID.IsZero() {
		m.Id = r.ID.String()
	}
	if r.DeliverAt > 0 {
		m.DeliverAt = convert.Time(time.UnixMilli(r.DeliverAt))
	}
	if r.ExpireAt > 0 {
		m.ExpireAt = convert.Time(time.UnixMilli(r.ExpireAt))
	}
	err := wire.EachHeader(r.Headers, func(name, value []byte) bool {
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		m.Headers[validText(name)] = validText(value)
		return true
	})
	return m, err
}

// validText is text of a client, with a replacement character for bytes that are no text: a client may have cut a
// character in the middle. One message must not make a listing, or a pull of many, fail.
func validText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// deadLetterOf reads a record of a dead letter queue.
func deadLetterOf(record []byte, at core.Receipt, enqueued int64) (*pb.DeadLetter, error) {
	m, r, err := Message(record)
	if err != nil {
		return nil, err
	}
	var history []*pb.EarlierFailure
	for _, l := range wire.Lives(r.Extra) {
		history = append(history, &pb.EarlierFailure{
			Attempts: int32(l.Attempts), Reason: validText(l.ReasonCode), Error: validText(l.Reason), DeadSince: convert.Time(time.UnixMicro(l.DeadSince)), LastConsumer: validText(l.LastConsumer),
		})
	}
	return &pb.DeadLetter{
		History: history,
		Id:      m.Id, Receipt: at.String(), Message: m, Attempts: int32(r.Attempts), Reason: validText(r.ReasonCode), Error: validText(r.Reason),
		FirstEnqueued: convert.Time(time.UnixMicro(r.FirstEnqueue)), DeadSince: convert.Time(time.UnixMicro(enqueued)),
		LastConsumer: validText(r.LastConsumer), Origin: r.Origin.String(),
	}, nil
}

// retryQueueMessage reads a record of a retry queue. Its payload is left out.
func retryQueueMessage(record []byte, at core.Receipt, delayed int64) (*pb.RetryQueueMessage, error) {
	m, r, err := Message(record)
	if err != nil {
		return nil, err
	}
	m.Payload = nil
	return &pb.RetryQueueMessage{
		Id: m.Id, Receipt: at.String(), Origin: r.Origin.String(), Message: m, Until: m.DeliverAt, Attempts: int32(r.Attempts), Reason: validText(r.ReasonCode),
		Error: validText(r.Reason), LastConsumer: validText(r.LastConsumer), FirstEnqueued: unixMicro(r.FirstEnqueue), DelayedSince: unixMicro(delayed),
	}, nil
}

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
		LastFailure: st.Failure.String(), LastError: validText([]byte(st.Text)), Owner: string(x.host.Self().ID),
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

// addRecord adds what the record of a message says of it: its id, and of a message of a retry queue how its last
// attempt ended, unless that is known already.
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
		out.LastFailure, out.LastError = validText(r.ReasonCode), validText(r.Reason)
	}
}
