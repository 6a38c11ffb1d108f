package history

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
)

var now = time.UnixMilli(1_700_000_000_000)

var (
	own       = dispatch.Source{Extent: core.ExtentID{ID: core.ID{1}}}
	returning = dispatch.Source{Extent: core.ExtentID{ID: core.ID{2}}, Returning: true}
)

func encode(t *testing.T, r *wire.Record) []byte {
	t.Helper()
	b, err := wire.AppendRecord(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestParked_AndOn follows a message through two parkings to its dead letter: attempts, first enqueue time, origin and
// id go on, and so do those of a life before it was merged back.
func TestParked_AndOn(t *testing.T) {
	id := core.MessageID{ID: core.NewID(now)}
	due := now.Add(10 * time.Minute)
	for _, before := range []uint16{0, 7} { // attempts before it was merged back
		record := encode(t, &wire.Record{ID: id, Attempts: before, Payload: []byte("x"), ExpireAt: 5, DeliverAt: 4})
		r, err := Record(dispatch.Transfer{To: dispatch.RetryQueue, Of: own, Seq: 9, Attempts: 2, NotCounted: 1, Failure: dispatch.Nacked, Text: "later", Enqueued: 77, Due: due, Record: record}, "worker", 3)
		if err != nil {
			t.Fatal(err)
		}
		want, origin := wire.History{Settled: before, NotCounted: 1, Epoch: 3}, core.Receipt{Extent: own.Extent, Seq: 9}
		if diff := cmp.Diff(want, wire.ReadHistory(r.Extra)); diff != "" || r.Attempts != before+2 || r.Origin != origin {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if r.ID != id || r.DeliverAt != due.UnixMilli() || r.FirstEnqueue != 77 || r.ExpireAt != 5 || string(r.Reason) != "later" || string(r.ReasonCode) != "nack" || string(r.LastConsumer) != "worker" {
			t.Fatalf("parked as %+v", r)
		}
		r, err = Record(dispatch.Transfer{To: dispatch.RetryQueue, Of: returning, Seq: 4, Attempts: 3, Metadata: []byte("m"), Enqueued: 99, Due: due, Record: encode(t, r)}, "", 4)
		if err != nil {
			t.Fatal(err)
		}
		want.NotCounted = 0 // and the epoch of its life stays
		if diff := cmp.Diff(want, wire.ReadHistory(r.Extra)); diff != "" || r.Attempts != before+3 || r.Origin != origin || r.FirstEnqueue != 77 || string(r.Metadata) != "m" || len(r.Reason) > 0 {
			t.Fatalf("parked again as %+v (-want +got):\n%s", r, diff)
		}
		letter, err := Record(dispatch.Transfer{Of: returning, Seq: 5, Attempts: 4, Failure: dispatch.Rejected, Record: encode(t, r)}, "", 0)
		if err != nil || letter.Attempts != before+4 || letter.Origin != origin || letter.FirstEnqueue != 77 || letter.DeliverAt != 0 || CopyOf(dispatch.DeadLetterQueue, letter) != (Copy{Origin: origin, Epoch: 3}) || wire.ReadHistory(letter.Extra).Settled != 0 || string(letter.Metadata) != "m" {
			t.Fatalf("the dead letter is %+v, %v", letter, err)
		}
	}
}

// TestParked_ShareGivenUp parks a message of the retry queue whose share is given up while it is on its way: its record
// is the same, so that whoever has the share next finds it.
func TestParked_ShareGivenUp(t *testing.T) {
	origin := core.Receipt{Extent: core.ExtentID{ID: core.ID{7}}, Seq: 70}
	record := encode(t, &wire.Record{
		Origin: origin, Attempts: 2, DeliverAt: now.UnixMilli(), Payload: []byte("x"), Extra: wire.WithHistory(nil, wire.History{Settled: 1, Epoch: 5}),
	})
	g := dispatch.NewGroup(core.GroupSpec{}.WithDefaults())
	s := g.AddTimers(core.ExtentID{ID: core.ID{2}}, dispatch.State{}, now)
	s.Returning()
	due := dispatch.DueRecords{Seqs: []core.Seq{1}, Offsets: []uint32{0, uint32(len(record))}, Bytes: record, DeliverAt: []int64{now.UnixMilli()}, Enqueued: []int64{now.UnixMicro()}}
	due.History = []dispatch.History{{Origin: origin, Attempts: 2, Settled: 1}}
	if err := s.OfferDue(due, now); err != nil {
		t.Fatal(err)
	}
	save := func() {
		_, token := s.Checkpoint(nil, false, now)
		s.Saved(token)
	}
	g.Take(1, dispatch.Credit{Messages: 1, Bytes: 1 << 20}, now, nil) // a claim
	save()
	runs := g.Take(1, dispatch.Credit{Messages: 1, Bytes: 1 << 20}, now, nil)
	if len(runs) != 1 {
		t.Fatalf("handed out %v", runs)
	}
	if err := s.Nack(1, runs[0].Attempt, time.Hour, nil, 0, now); err != nil {
		t.Fatal(err)
	}
	save()
	parks := g.TakeTransfers(dispatch.RetryQueue, 1, nil)
	if len(parks) != 1 {
		t.Fatalf("%d are to be parked", len(parks))
	}
	want, err := Record(parks[0], "", 9)
	if err != nil || want.Origin != origin || want.Attempts != 3 {
		t.Fatalf("parked as %+v, %v", want, err)
	}
	if again, err := Record(parks[0], "", 10); err != nil || cmp.Diff(want, again) != "" {
		t.Fatalf("parked in a later epoch as %+v, %v", again, err)
	}
	g.RemoveShare(s)
	got, err := Record(parks[0], "", 9)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("once its share is given up (-want +got):\n%s", diff)
	}
}

// A dead letter of a delayed message is not delayed again.
func TestLetter_HasNoTime(t *testing.T) {
	record := encode(t, &wire.Record{DeliverAt: now.Add(time.Hour).UnixMilli(), Payload: []byte("x")})
	letter, err := Record(dispatch.Transfer{Of: own, Seq: 1, Attempts: 3, Failure: dispatch.Rejected, Record: record}, "", 0)
	if err != nil || letter.DeliverAt != 0 || letter.Attempts != 3 {
		t.Errorf("letter %+v, %v", letter, err)
	}
}

// TestRecords_LargestPublishedFits: a message with as many attributes as one may be published with becomes a dead
// letter, also after a time in the retry queue and a merge. Else it would stay where it is for good.
func TestRecords_LargestPublishedFits(t *testing.T) {
	r := &wire.Record{ID: core.MessageID{ID: core.NewID(now)}, Payload: []byte("x")}
	for size := wire.MaxPublished - 64; ; size++ {
		headers, err := wire.AppendHeaders(nil, [2]string{"h", strings.Repeat("x", size)})
		if err != nil {
			t.Fatal(err)
		}
		before := r.Headers
		r.Headers = headers
		if _, err := wire.AppendPublished(nil, r); core.CodeOf(err) == core.CodeTooLarge {
			r.Headers = before
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	record := encode(t, r)
	for range 2 {
		transfer := dispatch.Transfer{To: dispatch.RetryQueue, Of: own, Seq: 1, Attempts: 3, NotCounted: 2, Unsure: 1, Failure: dispatch.LockTimedOut, Text: "no", Due: now, Enqueued: now.UnixMicro(), Record: record}
		retry, err := Record(transfer, "worker", 3)
		if err != nil {
			t.Fatal(err)
		}
		transfer.To, transfer.Of, transfer.Record = dispatch.DeadLetterQueue, returning, encode(t, retry)
		letter, err := Record(transfer, "worker", 3)
		if err != nil {
			t.Fatal(err)
		}
		if record = encode(t, letter); string(letter.Headers) != string(r.Headers) {
			t.Error("the dead letter has other headers")
		}
	}
}

// A message whose attributes leave no room for its history is stored all the same.
func TestRecords_AlwaysFit(t *testing.T) {
	headers, err := wire.AppendHeaders(nil, [2]string{"h", strings.Repeat("x", 64_500)})
	if err != nil {
		t.Fatal(err)
	}
	record := encode(t, &wire.Record{Headers: headers, Payload: []byte("x")})
	text := strings.Repeat("y", wire.MaxReason)
	letter, err := Record(dispatch.Transfer{Of: own, Seq: 1, Attempts: 3, Failure: dispatch.Nacked, Text: text, Record: record}, "worker", 0)
	if err != nil {
		t.Fatal(err)
	}
	parked, err := Record(dispatch.Transfer{To: dispatch.RetryQueue, Of: own, Seq: 1, Attempts: 3, Text: text, Metadata: make([]byte, core.MaxMetadata), Due: now, Record: record}, "worker", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*wire.Record{letter, parked} {
		encode(t, r)
	}
	if string(letter.LastConsumer) != "worker" || len(letter.Reason) > 0 {
		t.Errorf("the letter keeps %d bytes of reason, consumer %q", len(letter.Reason), letter.LastConsumer)
	}
}

// TestParked_MergedInAnyEpoch: a seek leaves a merged message as it is, so its record says the same before it and after
// it, and an append that is repeated is known as such.
func TestParked_MergedInAnyEpoch(t *testing.T) {
	p := dispatch.Transfer{To: dispatch.RetryQueue, Of: dispatch.Source{Extent: own.Extent, Merged: true}, Seq: 9, Attempts: 1, Due: now, Record: encode(t, &wire.Record{Attempts: 5, Payload: []byte("x")})}
	before, err := Record(p, "", 3)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Record(p, "", 4)
	if err != nil || cmp.Diff(before, after) != "" {
		t.Errorf("before a seek %+v, after it %+v, %v", before, after, err)
	}
}
