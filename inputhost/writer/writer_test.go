package writer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func TestWriter_AnswersAfterEveryReplica(t *testing.T) {
	b := newHarness(t, 3)
	b.start()
	p := &publisher{}
	b.w.Append(chunk(t, p, 1, 2))
	b.w.Append(chunk(t, p, 3, 1))
	b.w.Acked(0, 3)
	b.w.Acked(1, 3)
	if got := p.answers(); len(got) != 0 {
		t.Fatalf("answered with one replica missing: %v", got)
	}
	b.w.Acked(2, 2)
	want := map[uint64]Outcome{1: {Status: wire.AckOK, Extent: b.w.Extent.ID, Base: 1}}
	if d := cmp.Diff(want, p.answers()); d != "" {
		t.Fatal(d)
	}
	b.w.Acked(2, 3)
	want[3] = Outcome{Status: wire.AckOK, Extent: b.w.Extent.ID, Base: 3}
	if d := cmp.Diff(want, p.answers()); d != "" {
		t.Fatal(d)
	}
	if got := b.replicas[0].commits; !slices.Equal(got, []core.Seq{3}) {
		t.Fatalf("idle commits %v, want [3]: the last one, once nothing is in flight", got)
	}
}

func TestWriter_GathersAboveTheBound(t *testing.T) {
	b := newHarness(t, 1)
	b.start()
	p := &publisher{}
	for i := range gatherAt + 5 {
		b.w.Append(chunk(t, p, uint64(i+1), 1))
	}
	if got := len(b.replicas[0].batches); got != gatherAt {
		t.Fatalf("%d batches in flight, want %d", got, gatherAt)
	}
	b.w.Acked(0, 1)
	h := b.replicas[0].batches[gatherAt]
	if h.Count != 5 || h.Base != gatherAt+1 {
		t.Fatalf("next batch %+v, want the 5 that waited", h)
	}
}

// Chunks that fill a batch pass through the writer: nobody copies them into larger batches, and those in flight hold up
// none.
func TestWriter_FullChunksPassUncopied(t *testing.T) {
	b := newHarness(t, 1)
	b.start()
	p := &publisher{}
	record, err := wire.AppendRecord(nil, &wire.Record{Payload: make([]byte, wire.BatchTarget-100)})
	if err != nil {
		t.Fatal(err)
	}
	var chunks []Chunk
	for i := range 2 * gatherAt {
		c := Chunk{Records: slices.Clone(record), Hold: noHold{}, Count: 1, First: uint64(i + 1), Arrived: time.Now(), From: p}
		chunks = append(chunks, c)
		b.w.Append(c)
	}
	if got := len(b.replicas[0].batches); got != len(chunks)-1 {
		t.Fatalf("%d batches in flight, want %d: all but the last, which may become fuller", got, len(chunks)-1)
	}
	b.w.Acked(0, core.Seq(gatherAt))
	sent := b.replicas[0].records
	if len(sent) != len(chunks) {
		t.Fatalf("%d batches sent after acknowledgements, want %d", len(sent), len(chunks))
	}
	for i, records := range sent {
		if &records[0] != &chunks[i].Records[0] || len(records) != len(record) {
			t.Errorf("batch %d is not the bytes of its chunk", i)
		}
	}
}

func TestWriter_HeadersChain(t *testing.T) {
	b := newHarness(t, 1)
	b.start()
	p := &publisher{}
	var sum uint32
	next := core.Seq(1)
	for i := range 6 {
		c := chunk(t, p, uint64(i+1), i+1)
		b.w.Append(c)
		sum = wire.ExtendChecksum(sum, c.Records)
		h := b.replicas[0].batches[i]
		if h.Base != next || h.Checksum != sum || i > 0 && h.AppendTime < b.replicas[0].batches[i-1].AppendTime {
			t.Fatalf("batch %d: %+v, want base %d checksum %d", i, h, next, sum)
		}
		next = h.Last() + 1
	}
}

// Lags are those of one store of three that does not answer.
func TestWriter_Lags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 3)
		b.start()
		p := &publisher{}
		look := func() map[core.HostID]Lag {
			got := make(map[core.HostID]Lag)
			b.w.Lags(time.Now(), func(store core.HostID, l Lag) { got[store] = l })
			return got
		}
		if got := look(); len(got) > 0 {
			t.Fatalf("lags %v of a writer that sent nothing", got)
		}
		b.w.Append(chunk(t, p, 1, 1))
		b.w.Append(chunk(t, p, 2, 1))
		time.Sleep(time.Second)
		b.w.Acked(0, 2)
		b.w.Acked(1, 1)
		time.Sleep(time.Second)
		want := map[core.HostID]Lag{
			"a": {Slowest: time.Second},
			"b": {Oldest: 2 * time.Second, Behind: 2 * time.Second, Slowest: time.Second},
			"c": {Oldest: 2 * time.Second, Behind: 2 * time.Second, Overtaken: 2 * time.Second},
		}
		if d := cmp.Diff(want, look()); d != "" {
			t.Fatal(d)
		}
		b.w.Fail("c", errors.New("slow"))
		if got := look(); len(got) > 0 || b.failed != "c" {
			t.Fatalf("lags %v and failed %q, want none of a writer that c ended", got, b.failed)
		}
		b.settled()
	})
}

func TestWriter_FullIsToldOnce(t *testing.T) {
	b := newHarness(t, 1)
	b.w.limits.RollBytes = 100
	b.start()
	p := &publisher{}
	for i := range 10 {
		b.w.Append(chunk(t, p, uint64(i+1), 2))
		b.w.Acked(0, core.Seq(2*i+2))
	}
	if b.full != 1 {
		t.Errorf("told %d times that it is full, want once", b.full)
	}
}

func TestWriter_CloseFinishesWhatWasTaken(t *testing.T) {
	b := newHarness(t, 1)
	p := &publisher{}
	b.w.Append(chunk(t, p, 1, 1))
	b.w.Close("rolled")
	if b.ended != 0 {
		t.Fatal("ended with a chunk waiting")
	}
	b.start()
	if b.w.Append(chunk(t, p, 2, 1)) {
		t.Fatal("a closing writer took a chunk")
	}
	b.w.Acked(0, 1)
	b.settled()
	if p.answers()[1].Status != wire.AckOK || b.floor != 1 || b.reason != "rolled" || !b.replicas[0].closed {
		t.Fatalf("answers %v floor %d reason %q", p.answers(), b.floor, b.reason)
	}
}

func TestWriter_AckBeyondTheLastIsRefused(t *testing.T) {
	b := newHarness(t, 1)
	b.start()
	p := &publisher{}
	b.w.Append(chunk(t, p, 1, 1))
	b.w.Acked(0, 7)
	b.settled()
	if b.ended != 1 {
		t.Fatal("a replica that acknowledges what was never sent must end the extent")
	}
}

// TestWriter_FailsBeforeItStarts breaks one replica's link while another is still being opened: those that are open
// must be closed, by whoever comes last.
func TestWriter_FailsBeforeItStarts(t *testing.T) {
	b := newHarness(t, 2)
	p := &publisher{}
	b.w.Append(chunk(t, p, 1, 1))
	b.w.Fail("b", errors.New("the link broke"))
	b.start()
	b.settled()
	for i, r := range b.replicas {
		if !r.closed || len(r.batches) > 0 {
			t.Errorf("replica %d: closed %v, %d batches; want it closed, without any", i, r.closed, len(r.batches))
		}
	}
	if b.w.Open() || b.ended != 1 || b.sealed != 1 || len(b.again) != 1 {
		t.Errorf("open %v, ended %d and sealed %d times, %d chunks appended again; want false and one each", b.w.Open(), b.ended, b.sealed, len(b.again))
	}
}

// TestWriter_HoldsNoMoreThanItMay: an extent of so many records asks for a successor before it is full, refuses what
// does not fit, and ends then.
func TestWriter_HoldsNoMoreThanItMay(t *testing.T) {
	b := newHarness(t, 1)
	b.w.limits.MaxRecords = 16
	b.start()
	p := &publisher{}
	day := time.UnixMilli(1 << 41)
	due := func(first uint64, count int, at time.Time) Chunk {
		c := chunk(t, p, first, count)
		c.Part = &Part{Runs: []Run{{first, uint32(count)}}, Due: at.UnixMilli()}
		return c
	}
	for i := range 7 {
		if b.full != 0 {
			t.Fatalf("it asked for a successor after %d of 16 records", 2*i)
		}
		if !b.w.Append(due(uint64(1+2*i), 2, day.Add(time.Duration(-i)*time.Hour))) {
			t.Fatalf("record %d was refused", 2*i)
		}
	}
	if b.full != 1 {
		t.Fatalf("it asked %d times for a successor when it was nearly full, want once", b.full)
	}
	if b.w.Append(due(15, 3, day.Add(time.Hour))) || b.w.Open() {
		t.Error("it took what does not fit, or takes more")
	}
	if b.sealed != 0 || b.ended != 0 {
		t.Error("it ended with records under way")
	}
	b.w.Acked(0, 14)
	b.settled()
	if b.full != 1 || b.sealed != 1 || b.reason != "rolled" || b.floor != 14 || !b.due.Equal(day) {
		t.Errorf("%d requests for a successor, sealed %d times for %q at %d, due %s", b.full, b.sealed, b.reason, b.floor, b.due)
	}
	if got := p.answers(); len(got) != 7 {
		t.Errorf("%d chunks answered, want 7", len(got))
	}
}
