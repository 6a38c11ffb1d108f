package client

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// MessageID names a message for its whole life, also through retries and dead letter queues.
type MessageID = core.MessageID

// NewMessageID makes an id for Message.ID. Safe for concurrent use.
func NewMessageID() MessageID { return MessageID{ID: core.NewID(time.Now())} }

// Message is what a producer publishes. Only Body is usual; an empty one is allowed.
type Message struct {
	Body []byte
	// Key is carried with the message to its consumers, at most 128 bytes. It gives no order, and is not used for
	// fairness between keys yet.
	Key string
	// Headers travel with the message. Headers, Key, TraceParent and the other attributes together are at most 65,407
	// bytes.
	Headers map[string]string
	// Delay or DeliverAt (at most one of them) sets the earliest delivery, at most a year (366 days) ahead. The clocks
	// of the servers decide. Rounded up to whole milliseconds.
	Delay     time.Duration
	DeliverAt time.Time
	// ExpireAt is when the message becomes useless: after it, no group gets the message, neither as a first delivery
	// nor as a retry. It must be later than the earliest delivery. Whole milliseconds.
	ExpireAt time.Time
	// ID is the id of the message; if it is zero the publisher makes one.
	ID MessageID
	// TraceParent is the W3C trace context of the producer.
	TraceParent string
}

// Receipt says under which id a message is stored, and where: extent and seq. Its String is extent:seq.
type Receipt struct {
	ID MessageID
	core.Receipt
}

// record fills r, which is zero; its slices alias m.
func (m *Message) record(r *wire.Record) error {
	// A composite literal would clear and copy the whole record once more, which costs as much as encoding it.
	r.ID, r.Payload, r.Delay = m.ID, m.Body, core.Millis(max(m.Delay, 0))
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	if m.TraceParent != "" {
		r.TraceParent = []byte(m.TraceParent)
	}
	if !m.DeliverAt.IsZero() {
		r.DeliverAt = core.UnixMillis(m.DeliverAt)
	}
	if !m.ExpireAt.IsZero() {
		r.ExpireAt = m.ExpireAt.UnixMilli()
	}
	switch {
	case m.Delay < 0:
		return core.Errorf(core.CodeBadArgument, "delay %s is negative", m.Delay)
	case m.Delay > core.MaxAhead:
		return core.Errorf(core.CodeBadArgument, "delay %s is longer than a year (%s)", core.FormatDuration(m.Delay), core.FormatDuration(core.MaxAhead))
	case m.Delay > 0 && !m.DeliverAt.IsZero():
		return core.Errorf(core.CodeBadArgument, "delay and deliver-at are both set; use one of them")
	case !m.DeliverAt.IsZero() && r.DeliverAt <= 0:
		return core.Errorf(core.CodeBadArgument, "deliver-at %s is not after 1970", m.DeliverAt.Format(time.RFC3339))
	case !m.ExpireAt.IsZero() && r.ExpireAt <= 0:
		return core.Errorf(core.CodeBadArgument, "expire-at %s is not after 1970", m.ExpireAt.Format(time.RFC3339))
	case len(m.Key) > wire.MaxKey:
		return core.Errorf(core.CodeTooLarge, "key has %d bytes; at most %d are allowed", len(m.Key), wire.MaxKey)
	}
	if !m.DeliverAt.IsZero() {
		if err := core.CheckAhead(m.DeliverAt, time.Now()); err != nil {
			return err
		}
	}
	if !m.ExpireAt.IsZero() {
		due := m.DeliverAt
		if m.Delay > 0 {
			due = time.Now().Add(m.Delay)
		}
		if err := core.CheckExpiry(m.ExpireAt, due); err != nil {
			return err
		}
	}
	if len(m.Headers) == 0 {
		return nil
	}
	pairs := make([][2]string, 0, len(m.Headers))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		pairs = append(pairs, [2]string{name, m.Headers[name]})
	}
	var err error
	r.Headers, err = wire.AppendHeaders(nil, pairs...)
	return err
}

func messageToProto(m Message) *pb.Message {
	out := &pb.Message{
		Payload: m.Body, Key: m.Key, Headers: m.Headers, Delay: convert.DurationToProto(m.Delay),
		DeliverAt: convert.Time(m.DeliverAt), ExpireAt: convert.Time(m.ExpireAt), TraceParent: m.TraceParent,
	}
	if !m.ID.IsZero() {
		out.Id = m.ID.String()
	}
	return out
}

func messageFromProto(p *pb.Message) (Message, error) {
	m := Message{
		Body: p.GetPayload(), Key: p.GetKey(), Headers: p.GetHeaders(), Delay: p.GetDelay().AsDuration(),
		DeliverAt: timeFromProto(p.GetDeliverAt()), ExpireAt: timeFromProto(p.GetExpireAt()), TraceParent: p.GetTraceParent(),
	}
	id, err := parseID(p.GetId())
	m.ID = MessageID{ID: id}
	return m, err
}

// delayToProto keeps zero, which means at once.
func delayToProto(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
