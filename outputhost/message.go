package outputhost

import (
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// eachRecord calls f for every record of a run.
func eachRecord(records []byte, base core.Seq, f func(seq core.Seq, record []byte) error) error {
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

// messageOf copies a record into the form of the unary API; first is when it was enqueued first, unix µs, of one that was a dead letter since, else 0.
func messageOf(record []byte) (m *pb.Message, first int64, err error) {
	var r wire.Record
	if _, err := wire.DecodeRecord(record, &r); err != nil {
		return nil, 0, err
	}
	m, err = recordMessage(&r)
	return m, r.FirstEnqueue, err
}

func recordMessage(r *wire.Record) (*pb.Message, error) {
	m := &pb.Message{Payload: append([]byte{}, r.Payload...), Key: string(r.Key), TraceParent: string(r.TraceParent)}
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
		m.Headers[string(name)] = string(value)
		return true
	})
	return m, err
}

// letterOf reads a record of a dead letter queue.
func letterOf(record []byte, at core.Receipt, enqueued int64) (*pb.DeadLetter, error) {
	var r wire.Record
	if _, err := wire.DecodeRecord(record, &r); err != nil {
		return nil, err
	}
	m, err := recordMessage(&r)
	if err != nil {
		return nil, err
	}
	return &pb.DeadLetter{
		Id: m.Id, Receipt: at.String(), Message: m, Attempts: int32(r.Attempts), Reason: string(r.ReasonCode), Error: string(r.Reason),
		FirstEnqueued: convert.Time(time.UnixMicro(r.FirstEnqueue)), DeadSince: convert.Time(time.UnixMicro(enqueued)),
		LastConsumer: string(r.LastConsumer), Origin: r.Origin.String(),
	}, nil
}
