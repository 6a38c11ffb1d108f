package dispatch

import (
	"bytes"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// scatteredShare is a share with MaxOutstanding messages in flight, of a second attempt each, in a chunk of its own: as
// an earlier owner left it.
func scatteredShare(b *testing.B) (*Share, time.Time) {
	b.Helper()
	now := time.Unix(1000, 0)
	st := State{messages: map[core.Seq]entry{}}
	for i := range core.Seq(MaxOutstanding) {
		st.messages[1+i*chunkLen] = entry{kind: kindLocked, attempts: 2, failure: Nacked, due: now.Add(time.Hour).UnixMilli()}
	}
	g := NewGroup(core.GroupSpec{LockTimeout: time.Minute, MaxDeliveries: 5}.WithDefaults())
	return g.AddShare(core.ExtentID{}, st, now), now
}

// BenchmarkCheckpoint_Scattered is a checkpoint of a share that is full of retries in flight, each in a chunk of its
// own; locked is the part of it during which the share cannot be used.
func BenchmarkCheckpoint_Scattered(b *testing.B) {
	for _, part := range []string{"whole", "locked"} {
		b.Run(part, func(b *testing.B) {
			s, now := scatteredShare(b)
			b.ReportAllocs()
			var locked time.Duration
			for b.Loop() {
				began := time.Now()
				d := s.Draft(false, now)
				drafted := time.Now()
				d.Encode(nil)
				encoded := time.Now()
				s.Conclude(d)
				locked += drafted.Sub(began) + time.Since(encoded)
			}
			if part == "locked" {
				b.ReportMetric(float64(locked.Nanoseconds())/float64(b.N), "ns/op")
			}
		})
	}
}

// BenchmarkCheckpoint_FirstAttempts is a checkpoint of a share whose messages are in flight in their first attempt, as
// they were handed out: 250 at a time.
func BenchmarkCheckpoint_FirstAttempts(b *testing.B) {
	const inFlight = 32_000
	now := time.Unix(1000, 0)
	g := NewGroup(core.GroupSpec{LockTimeout: time.Minute}.WithDefaults())
	s := g.AddShare(core.ExtentID{}, State{}, now)
	if err := s.Offer(records(1, inFlight, nil), now); err != nil {
		b.Fatal(err)
	}
	for i := range inFlight / 250 {
		now = now.Add(time.Millisecond)
		g.Take(SessionID(1+i%8), Credit{Messages: 250, Bytes: 1 << 20}, now, nil)
	}
	b.ReportAllocs()
	var blob []byte
	for b.Loop() {
		blob, _ = s.Checkpoint(blob[:0], false, now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/inFlight, "ns/message")
}

// TestShare_GoesOnBetweenDraftAndConclude: what happens to a share while a checkpoint of it is encoded is not in that
// checkpoint, is not taken for saved with it, and makes the next one due.
func TestShare_GoesOnBetweenDraftAndConclude(t *testing.T) {
	now := time.Unix(1000, 0)
	g := NewGroup(core.GroupSpec{LockTimeout: time.Minute, MaxDeliveries: 5}.WithDefaults())
	s := g.AddShare(core.ExtentID{}, State{}, now)
	if err := s.Offer(records(1, 300, nil), now); err != nil {
		t.Fatal(err)
	}
	g.Take(7, Credit{Messages: 300, Bytes: 1 << 20}, now, nil)
	nack := func(seq core.Seq) {
		t.Helper()
		if err := s.Nack(seq, 1, 0, nil, 0, now); err != nil {
			t.Fatal(err)
		}
	}
	nack(100)
	want, _ := s.Checkpoint(nil, false, now)
	d := s.Draft(false, now)
	nack(200)
	if bad := s.Ack(1, 50, 1, now, nil); bad != nil {
		t.Fatal(bad)
	}
	got := d.Encode(nil)
	s.Conclude(d)
	if !bytes.Equal(got, want) {
		t.Errorf("the checkpoint is another one than before, %d and %d bytes", len(got), len(want))
	}
	s.Saved(d.Token())
	if !s.Changed() || s.Unsaved() != 1 {
		t.Errorf("what came between is saved: changed %v, %d retries wait; want one", s.Changed(), s.Unsaved())
	}
	runs := g.Take(7, Credit{Messages: 10, Bytes: 1 << 20}, now, nil)
	if len(runs) != 1 || runs[0].Base != 100 {
		t.Errorf("%+v is handed out, want the retry that was counted", runs)
	}
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

// TestShare_IsRemovedBetweenDraftAndConclude: nothing comes of it.
func TestShare_IsRemovedBetweenDraftAndConclude(t *testing.T) {
	now := time.Unix(1000, 0)
	g := NewGroup(core.GroupSpec{LockTimeout: time.Minute}.WithDefaults())
	s := g.AddShare(core.ExtentID{}, State{}, now)
	if err := s.Offer(records(1, 10, nil), now); err != nil {
		t.Fatal(err)
	}
	d := s.Draft(false, now)
	g.RemoveShare(s)
	d.Encode(nil)
	s.Conclude(d)
	if err := g.check(); err != nil || len(g.takeChanged()) > 0 {
		t.Errorf("%v, or the share is listed", err)
	}
}
