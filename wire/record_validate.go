package wire

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// validate checks what a caller may get wrong; decoding applies the same rules to what a peer sends.
func (r *Record) validate() error {
	if r.Codec > CodecZstd {
		return core.Errorf(core.CodeBadArgument, "payload codec %d is unknown; use none (0) or zstd (1)", r.Codec)
	}
	if len(r.Payload) > MaxPayload {
		return core.Errorf(core.CodeTooLarge, "payload has %d bytes; at most %d are allowed", len(r.Payload), MaxPayload)
	}
	if err := r.validateLengths(); err != nil {
		return err
	}
	if problem := r.badTime(); problem != "" {
		return core.Errorf(core.CodeBadArgument, "%s", problem)
	}
	if !validHeaders(r.Headers) {
		return core.Errorf(core.CodeBadArgument, "headers are not in the form that AppendHeaders writes")
	}
	if !validExtra(r.Extra) {
		return core.Errorf(core.CodeBadArgument, "extra fields are not whole type-length-value triples")
	}
	return nil
}

func (r *Record) validateLengths() error {
	for _, v := range [...]struct {
		name   string
		n, max int
	}{
		{"key", len(r.Key), MaxKey},
		{"headers", len(r.Headers), MaxAttributes},
		{"traceparent", len(r.TraceParent), MaxTraceParent},
		{"metadata", len(r.Metadata), MaxAttributes},
		{"reason code", len(r.ReasonCode), MaxReasonCode},
		{"reason", len(r.Reason), MaxReason},
		{"consumer name", len(r.LastConsumer), MaxConsumerName},
	} {
		if v.n > v.max {
			return core.Errorf(core.CodeTooLarge, "%s has %d bytes; at most %d are allowed", v.name, v.n, v.max)
		}
	}
	return nil
}

// badTime returns the defect of the record's times, "" if there is none.
func (r *Record) badTime() string {
	switch {
	case r.DeliverAt|r.Delay|r.ExpireAt|r.FirstEnqueue == 0:
	case r.DeliverAt != 0 && r.Delay != 0:
		return "deliver_at and delay are both set; use one"
	case r.DeliverAt < 0 || r.DeliverAt > MaxMillis:
		return "deliver_at is not a unix time in milliseconds before the year 10000"
	case r.Delay < 0 || r.Delay > MaxMillis:
		return "delay is negative or beyond the year 9999"
	case r.ExpireAt < 0 || r.ExpireAt > MaxMillis:
		return "expire_at is not a unix time in milliseconds before the year 10000"
	case r.FirstEnqueue < 0 || r.FirstEnqueue/1000 > MaxMillis:
		return "first enqueue time is not a unix time in microseconds before the year 10000"
	}
	return ""
}

// validExtra reports whether b is whole fields of: type u16 | length u16 | value.
func validExtra(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 4 {
			return false
		}
		n := 4 + int(binary.LittleEndian.Uint16(b[2:]))
		if n > len(b) {
			return false
		}
		b = b[n:]
	}
	return true
}
