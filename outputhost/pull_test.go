package outputhost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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

func recordOf(t testing.TB, payload string) []byte {
	t.Helper()
	record, err := wire.AppendRecord(nil, &wire.Record{Payload: []byte(payload)})
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// TestPull_TakesNothingForACallerThatIsGone: a pull is woken as its caller gives up. Messages taken for it would be
// locked for nobody.
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

// TestPull_BadRecordHidesNoOther: one record cannot be read, wherever it is among those taken. The others are answered;
// alone it is an error.
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

// TestPull_WithoutWaitGivesASlowStoreTime: a pull that does not want to wait gets a message that its store sends after
// 300 ms. It does not wait when every store has told that there is nothing more.
func TestPull_WithoutWaitGivesASlowStoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.given()
		answers := make(chan time.Duration, 1)
		pull := func(want int) {
			began := time.Now()
			messages, err := g.pull(t.Context(), 1, 0)
			if len(messages) != want || err != nil {
				t.Errorf("%d messages, %v; want %d", len(messages), err, want)
			}
			answers <- time.Since(began)
		}
		go pull(1)
		time.Sleep(300 * time.Millisecond)
		b.offer(g, s, recordOf(t, "1"))
		g.pump()
		if took := <-answers; took != 300*time.Millisecond {
			t.Errorf("a message that came after 300ms was answered after %s", took)
		}
		g.mu.Lock()
		s.reader = &reader{g: g, s: s, told: true}
		g.mu.Unlock()
		go pull(0)
		if took := <-answers; took != firstRead {
			t.Errorf("nothing was answered after %s, want %s", took, firstRead)
		}
	})
}
