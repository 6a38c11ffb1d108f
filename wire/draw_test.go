package wire

import (
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

// fullRecord has every attribute. DeliverAt and Delay exclude each other; this one has DeliverAt.
func fullRecord() *Record {
	headers, err := AppendHeaders(nil, [2]string{"content-type", "text/plain"}, [2]string{"empty", ""})
	if err != nil {
		panic(err)
	}
	return &Record{
		ID:           core.MessageID{ID: testID(1)},
		Producer:     testID(2),
		ProducerSeq:  77,
		Key:          []byte("customer-42"),
		Priority:     3,
		DeliverAt:    1767225600000,
		ExpireAt:     1767312000000,
		Attempts:     4,
		Polls:        5,
		FirstEnqueue: 1767225599000123,
		Headers:      headers,
		TraceParent:  []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		Metadata:     []byte(`{"step":2}`),
		Origin:       core.Receipt{Extent: core.ExtentID{ID: testID(3)}, Seq: 99},
		ReasonCode:   []byte("nack"),
		Reason:       []byte("upstream answered 503"),
		LastConsumer: []byte("worker-1"),
		Extra:        []byte{1, 0, 2, 0, 0xaa, 0xbb},
		Codec:        CodecZstd,
		Payload:      []byte("hello, world"),
	}
}

func drawBytes(t *rapid.T, name string, most int) []byte {
	return rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, name)
}

func drawID(t *rapid.T, name string) (id core.ID) {
	if rapid.Bool().Draw(t, name+" set") {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
	}
	return id
}

func drawSeq(t *rapid.T, name string) core.Seq {
	return core.Seq(rapid.Uint64Range(1, 1<<63).Draw(t, name))
}

// drawRecord makes any record that AppendRecord takes.
func drawRecord(t *rapid.T) *Record {
	millis := rapid.Int64Range(0, MaxMillis)
	r := &Record{
		ID:           core.MessageID{ID: drawID(t, "id")},
		Producer:     drawID(t, "producer"),
		ProducerSeq:  rapid.Uint64().Draw(t, "producer seq"),
		Key:          drawBytes(t, "key", MaxKey),
		Priority:     rapid.Uint8().Draw(t, "priority"),
		ExpireAt:     millis.Draw(t, "expire_at"),
		Attempts:     rapid.Uint16().Draw(t, "attempts"),
		Polls:        rapid.Uint16().Draw(t, "polls"),
		FirstEnqueue: millis.Draw(t, "first enqueue"),
		TraceParent:  drawBytes(t, "traceparent", MaxTraceParent),
		Metadata:     drawBytes(t, "metadata", 300),
		Origin:       core.Receipt{Extent: core.ExtentID{ID: drawID(t, "origin")}, Seq: core.Seq(rapid.Uint64().Draw(t, "origin seq"))},
		ReasonCode:   drawBytes(t, "reason code", MaxReasonCode),
		Reason:       drawBytes(t, "reason", 300),
		LastConsumer: drawBytes(t, "consumer", MaxConsumerName),
		Codec:        Codec(rapid.IntRange(0, 1).Draw(t, "codec")),
		Payload:      drawBytes(t, "payload", 3000),
	}
	if rapid.Bool().Draw(t, "delayed") {
		r.Delay = millis.Draw(t, "delay")
	} else {
		r.DeliverAt = millis.Draw(t, "deliver_at")
	}
	for range rapid.IntRange(0, 3).Draw(t, "extra fields") {
		r.Extra = append(r.Extra, rapid.Byte().Draw(t, "extra type"), 0)
		r.Extra = appendLong(r.Extra, drawBytes(t, "extra value", 20))
	}
	var pairs [][2]string
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		pairs = append(pairs, [2]string{rapid.StringN(1, 10, 40).Draw(t, "name"), rapid.StringN(0, 10, 40).Draw(t, "value")})
	}
	var err error
	if r.Headers, err = AppendHeaders(nil, pairs...); err != nil {
		t.Fatal(err)
	}
	return r
}
