package outputhost

import (
	"context"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
)

// offer gives the share a batch of records.
func (b *harness) offer(g *group, s *share, records ...[]byte) {
	b.t.Helper()
	r := dispatch.Records{Offsets: []uint32{0}, Enqueued: b.deps.Now().UnixMicro()}
	for _, record := range records {
		r.Bytes = append(r.Bytes, record...)
		r.Offsets = append(r.Offsets, uint32(len(r.Bytes)))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r.Base = s.rules.ReadFrom()
	if err := s.rules.Offer(r, b.deps.Now()); err != nil {
		b.t.Fatal(err)
	}
}

func recordOf(t *testing.T, payload string) []byte {
	t.Helper()
	record, err := wire.AppendRecord(nil, &wire.Record{Payload: []byte(payload)})
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// TestPull_TakesNothingForACallerThatIsGone: a pull is woken as its caller gives up. Messages taken for it would be locked for nobody.
func TestPull_TakesNothingForACallerThatIsGone(t *testing.T) {
	b := newHarness(t)
	g, s := b.given()
	b.offer(g, s, recordOf(t, "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if messages, err := g.takeForPull(ctx, 1); len(messages) > 0 || err != nil {
		t.Errorf("it took %d messages, %v", len(messages), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := s.rules.Depth(); d.InFlight != 0 || d.Ready != 1 {
		t.Errorf("%d messages are locked, %d ready; want none and one", d.InFlight, d.Ready)
	}
}

// TestPull_BadRecordHidesNoOther: one record cannot be read, wherever it is among those taken. The others are answered; alone it is an error.
func TestPull_BadRecordHidesNoOther(t *testing.T) {
	b := newHarness(t)
	g, s := b.given()
	bad := recordOf(t, "bad")
	bad[len(bad)-1] ^= 1
	b.offer(g, s, recordOf(t, "1"), bad, recordOf(t, "3"))
	b.offer(g, s, recordOf(t, "4"))
	b.offer(g, s, recordOf(t, "5"), bad)
	messages, err := g.takeForPull(t.Context(), 10)
	got := ""
	for _, m := range messages {
		got += string(m.Message.Payload)
	}
	if got != "1345" || err != nil {
		t.Errorf("got %q, %v; want all but what cannot be read", got, err)
	}
	b.offer(g, s, bad)
	if messages, err := g.takeForPull(t.Context(), 10); len(messages) > 0 || core.CodeOf(err) != core.CodeBadRecord {
		t.Errorf("got %d messages, %v; want %s", len(messages), err, core.CodeBadRecord)
	}
}
