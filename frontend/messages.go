package frontend

import (
	"context"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

const (
	maxMessages = 1000 // in one Publish or Pull
	publishPath = "/v1/publish"
	// answerMargin is left of a call's time to say that a message's outcome is unknown.
	answerMargin = 200 * time.Millisecond
)

// Publish stores messages and answers when each has its outcome. A message that may not be stored fails the call before
// any is.
func (s *service) Publish(ctx context.Context, req *connect.Request[pb.PublishRequest]) (*connect.Response[pb.PublishResponse], error) {
	messages := req.Msg.GetMessages()
	if len(messages) < 1 || len(messages) > maxMessages {
		return nil, core.Errorf(core.CodeBadArgument, "%d messages in one call; 1 to %d are allowed", len(messages), maxMessages)
	}
	q, err := s.publishable(ctx, req.Msg.GetQueue())
	if err != nil {
		return nil, err
	}
	out := &pb.PublishResponse{Results: make([]*pb.PublishResponse_Result, len(messages))}
	ids := make([]core.MessageID, len(messages))
	records := make([][]byte, len(messages))
	for i, m := range messages {
		if ids[i], records[i], err = s.encode(m, q.Spec.MaxMessage); err != nil {
			return nil, core.Errorf(core.CodeOf(err), "message %d of %d: %w", i+1, len(messages), err)
		}
		out.Results[i] = &pb.PublishResponse_Result{Id: ids[i].String()}
	}
	l, err := s.publishers.Take(q)
	if err != nil {
		return nil, err
	}
	defer s.publishers.GiveBack(l)
	for i, o := range appendAll(ctx, l.Publisher, ids, records) {
		if o.err != nil {
			out.Results[i].Error = convert.ErrorToProto(o.err)
		} else {
			out.Results[i].Receipt = o.at.String()
		}
	}
	return connect.NewResponse(out), nil
}

// stored is the outcome of one record.
type stored struct {
	i   int
	at  core.Receipt
	err error
}

// appendAll hands the records to the publisher and waits for their outcomes; those that it must not wait for are
// unknown.
func appendAll(ctx context.Context, pub *publish.Publisher, ids []core.MessageID, records [][]byte) []stored {
	timeout := time.Millisecond
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(timeout, time.Until(deadline)-answerMargin)
	}
	outcomes := make(chan stored, len(records)) // room for all: the publisher never waits for this call
	out := make([]stored, len(records))
	waiting := 0
	for i, r := range records {
		out[i].err = core.Errorf(core.CodeUnknown, "the call ended before the message was acknowledged; it may or may not be stored")
		err := pub.AppendEncoded(ctx, r, ids[i], timeout, publish.DoneFunc(func(_ core.MessageID, at core.Receipt, err error) {
			outcomes <- stored{i, at, err}
		}))
		if err != nil {
			out[i].err = err
			continue
		}
		waiting++
	}
	for ; waiting > 0; waiting-- {
		select {
		case o := <-outcomes:
			out[o.i] = o
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// encode makes a record of a message; CodeTooLarge, CodeBadID, CodeBadArgument, CodeUnsupported.
func (s *service) encode(m *pb.Message, most int) (core.MessageID, []byte, error) {
	now := s.now()
	id := core.MessageID{ID: core.NewID(now)}
	switch {
	case m.GetExpireAt() != nil && m.ExpireAt.AsTime().UnixMilli() <= 0:
		return id, nil, core.Errorf(core.CodeBadArgument, "expire_at %s is not after 1970", m.ExpireAt.AsTime().Format(time.RFC3339))
	case len(m.GetPayload()) > most:
		return id, nil, core.Errorf(core.CodeTooLarge, "payload has %d bytes; the queue takes at most %d, see --max-message", len(m.Payload), most)
	case len(m.GetKey()) > wire.MaxKey:
		return id, nil, core.Errorf(core.CodeTooLarge, "key has %d bytes; at most %d are allowed", len(m.Key), wire.MaxKey)
	}
	if m.GetId() != "" {
		given, err := core.ParseID(m.Id)
		if err != nil {
			return id, nil, err
		}
		if given.IsZero() {
			return id, nil, core.Errorf(core.CodeBadID, "message id is zero; leave it out to have one made")
		}
		id.ID = given
	}
	r := wire.Record{ID: id, Payload: m.GetPayload()}
	if err := setDue(&r, m, now); err != nil {
		return id, nil, err
	}
	if m.GetExpireAt() != nil {
		var due time.Time
		switch {
		case r.Delay > 0:
			due = now.Add(m.GetDelay().AsDuration())
		case m.GetDeliverAt() != nil:
			due = m.DeliverAt.AsTime()
		}
		if err := core.CheckExpiry(m.ExpireAt.AsTime(), due); err != nil {
			return id, nil, err
		}
		r.ExpireAt = m.ExpireAt.AsTime().UnixMilli()
	}
	if m.GetKey() != "" {
		r.Key = []byte(m.Key)
	}
	if m.GetTraceParent() != "" {
		r.TraceParent = []byte(m.TraceParent)
	}
	if len(m.GetHeaders()) > 0 {
		pairs := make([][2]string, 0, len(m.Headers))
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			pairs = append(pairs, [2]string{name, m.Headers[name]})
		}
		var err error
		if r.Headers, err = wire.AppendHeaders(nil, pairs...); err != nil {
			return id, nil, err
		}
	}
	record, err := wire.AppendPublished(nil, &r)
	return id, record, err
}

// setDue sets the time of the earliest delivery. A message whose time is in the past is delivered at once.
func setDue(r *wire.Record, m *pb.Message, now time.Time) error {
	delay, at := m.GetDelay().AsDuration(), m.GetDeliverAt().AsTime()
	switch {
	case m.GetDelay() != nil && m.GetDeliverAt() != nil:
		return core.Errorf(core.CodeBadArgument, "delay and deliver_at are both set; use one of them")
	case m.GetDelay() != nil:
		if err := checkDuration("delay", m.Delay, 0, core.MaxAhead); err != nil {
			return err
		}
		r.Delay = core.Millis(delay)
	case m.GetDeliverAt() != nil:
		if at.UnixMilli() <= 0 {
			return core.Errorf(core.CodeBadArgument, "deliver_at %s is not after 1970", at.Format(time.RFC3339))
		}
		r.DeliverAt = core.UnixMillis(at)
		return core.CheckAhead(at, now)
	}
	return nil
}

// newPublisher makes the publisher of a queue; it reaches the input hosts over this process's shared links.
func (s *service) newPublisher(q metadata.QueueRecord) *publish.Publisher {
	return publish.New(publish.Config{
		Queue: q.Spec.Path, Client: "frontend " + string(s.members.Self().ID), Log: s.log, Timeout: s.cfg.CallTimeout,
		Route: func(ctx context.Context) ([]publish.Host, error) {
			hosts, err := s.publishRoute(ctx, q.Spec.Path)
			out := make([]publish.Host, len(hosts))
			for i, h := range hosts {
				out[i] = publish.Host{ID: h.ID, Address: h.Address}
			}
			return out, err
		},
		Dial: func(ctx context.Context, h publish.Host) (*ws.Mux, error) {
			return s.peers.Link(ctx, h.Address, publishPath)
		},
	})
}
