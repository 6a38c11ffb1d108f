package inspect

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestMessages_OfBytesThatAreNoText reads a record of which nothing is text, as a client may publish and nack it: it
// must not make a listing, or a pull, fail.
func TestMessages_OfBytesThatAreNoText(t *testing.T) {
	no := []byte("a\xff")
	headers, err := wire.AppendHeaders(nil, [2]string{string(no), string(no)})
	if err != nil {
		t.Fatal(err)
	}
	extra := wire.AppendLife(nil, wire.Life{Attempts: 1, Total: 1, ReasonCode: no, Reason: no, LastConsumer: no})
	record, err := wire.AppendRecord(nil, &wire.Record{Key: no, TraceParent: no, Headers: headers, Metadata: no, ReasonCode: no, Reason: no, LastConsumer: no, Payload: no, Extra: extra})
	if err != nil {
		t.Fatal(err)
	}
	letter, err := deadLetterOf(record, core.Receipt{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	delayed, err := retryQueueMessage(record, core.Receipt{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []proto.Message{letter, delayed} {
		if _, err := proto.Marshal(m); err != nil {
			t.Errorf("%T cannot be sent: %v", m, err)
		}
	}
	if string(letter.Message.Payload) != string(no) {
		t.Errorf("the payload is %q", letter.Message.Payload)
	}
}
