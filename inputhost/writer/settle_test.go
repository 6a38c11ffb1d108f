package writer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func TestWriter_FailureIsDecidedByTheSeal(t *testing.T) {
	b := newHarness(t, 3)
	b.start()
	p, gone := &publisher{}, &publisher{gone: true}
	b.w.Append(chunk(t, p, 1, 1))
	b.w.Append(chunk(t, p, 2, 1))
	b.w.Append(chunk(t, p, 3, 1))
	b.w.Append(chunk(t, gone, 4, 1))
	for r := range 3 {
		b.w.Acked(r, 1)
	}
	b.seal = func(core.Seq) (core.Seq, int, error) {
		// An ack that races with the seal must not be answered by itself.
		for r := range 3 {
			b.w.Acked(r, 4)
		}
		return 2, 2, nil
	}
	b.w.Fail("a", core.Errorf(core.CodeUnavailable, "link broke"))
	b.settled()
	ok := func(base core.Seq) Outcome { return Outcome{Status: wire.AckOK, Extent: b.w.Extent.ID, Base: base} }
	if d := cmp.Diff(map[uint64]Outcome{1: ok(1), 2: ok(2)}, p.answers()); d != "" {
		t.Fatal(d)
	}
	if b.floor != 1 {
		t.Fatalf("floor %d, want 1: what was acknowledged", b.floor)
	}
	if len(b.again) != 1 || b.again[0].First != 3 {
		t.Fatalf("appended again %+v, want chunk 3 alone: nobody waits for 4", b.again)
	}
	if o := gone.answers()[4]; o.Status != wire.AckRefused {
		t.Fatalf("chunk of a gone publisher: %+v", o)
	}
	if b.ended != 1 || b.sealed != 1 {
		t.Fatalf("ended %d, sealed %d", b.ended, b.sealed)
	}
	if b.w.Append(chunk(t, p, 9, 1)) {
		t.Fatal("an ended writer took a chunk")
	}
}

// A seal with one holder of three answers nothing by itself; the writer asks until the repair has made a second.
func TestWriter_OneHolderIsNotEnough(t *testing.T) {
	for _, repaired := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t, 3)
			b.start()
			p := &publisher{}
			b.w.Append(chunk(t, p, 1, 1))
			b.w.Append(chunk(t, p, 2, 1))
			began := time.Now()
			b.seal = func(core.Seq) (core.Seq, int, error) {
				if repaired && time.Since(began) > time.Second {
					return 1, 2, nil
				}
				return 1, 1, nil
			}
			b.w.Fail("a", core.Errorf(core.CodeUnavailable, "link broke"))
			synctest.Wait()
			if len(p.answers()) > 0 || len(b.again) != 1 || b.again[0].First != 2 {
				t.Fatalf("answered %v, again %v; want nothing answered, and what is beyond L appended again at once", p.answers(), b.again)
			}
			b.settled()
			want, after := Unknown(), 3*time.Second
			if repaired {
				want, after = Outcome{Status: wire.AckOK, Extent: b.w.Extent.ID, Base: 1}, time.Second
			}
			if o := p.answers()[1]; o != want {
				t.Errorf("outcome %+v, want %+v", o, want)
			}
			if took := time.Since(began); took < after || took > after+askOwing {
				t.Errorf("answered after %s, want %s", took, after)
			}
		})
	}
}

func TestWriter_NoSealAnswerIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 1)
		b.start()
		p := &publisher{}
		b.w.Append(chunk(t, p, 1, 1))
		tries := 0
		b.seal = func(core.Seq) (core.Seq, int, error) {
			if tries++; tries < 30 {
				return 0, 0, errors.New("no controller")
			}
			return 1, 1, nil
		}
		began := time.Now()
		b.w.Fail("a", errors.New("too slow"))
		time.Sleep(3*time.Second + 1)
		synctest.Wait()
		if o := p.answers()[1]; o.Status != wire.AckUnknown || time.Since(began) > 4*time.Second {
			t.Fatalf("outcome %+v, want unknown at the publish deadline", o)
		}
		b.settled()
		if b.sealed != 1 || tries < 30 {
			t.Fatalf("sealed %d after %d tries: the writer must go on asking", b.sealed, tries)
		}
	})
}

// zombieStore makes durable what the writer sent, when the test says so, until it is fenced. Its acknowledgements reach
// the writer later, or never.
type zombieStore struct {
	fakeReplica
	durable core.Seq
	next    int // batch to make durable
	acks    []core.Seq
	fenced  bool
}

// TestWriter_AcknowledgesOnlyWhatIsSealed lets appends, acknowledgements and the fences of any of the stores come in
// any order, and the writer learn of the end before or after the acknowledgements that were under way. Every
// acknowledged record must lie in the extent as any of the fenced stores alone would seal it, and each chunk is
// answered once or appended again.
func TestWriter_AcknowledgesOnlyWhatIsSealed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(rt, "replicas")
		b := newHarness(t, n)
		stores := make([]*zombieStore, n)
		rs := make([]Replica, n)
		for i := range stores {
			stores[i] = &zombieStore{}
			rs[i] = stores[i]
		}
		b.w.Start(rs)
		p := &publisher{}
		chunks := uint64(0)
		count := make(map[uint64]core.Seq)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			s := rapid.IntRange(0, n-1).Draw(rt, "store")
			switch st := stores[s]; rapid.SampledFrom([]string{"append", "append", "durable", "durable", "ack", "ack", "fence"}).Draw(rt, "step") {
			case "append":
				chunks++
				c := chunk(t, p, chunks, rapid.IntRange(1, 3).Draw(rt, "records"))
				count[chunks] = core.Seq(c.Count)
				b.w.Append(c)
			case "durable":
				if !st.fenced && st.next < len(st.batches) {
					st.durable = st.batches[st.next].Last()
					st.next++
					st.acks = append(st.acks, st.durable)
				}
			case "ack":
				if len(st.acks) > 0 {
					b.w.Acked(s, st.acks[0])
					st.acks = st.acks[1:]
				}
			case "fence":
				st.fenced = rapid.IntRange(0, 3).Draw(rt, "really") == 0 || st.fenced
			}
		}
		// Some are fenced; the others may be lost.
		stores[rapid.IntRange(0, n-1).Draw(rt, "fenced")].fenced = true
		least, l := core.Seq(1<<62), core.Seq(0)
		for _, st := range stores {
			if st.fenced {
				least, l = min(least, st.durable), max(l, st.durable)
			}
		}
		for i, st := range stores { // what was under way when the writer stood still
			for _, a := range st.acks {
				b.w.Acked(i, a)
			}
		}
		for first, o := range p.answers() {
			if o.Status != wire.AckOK || o.Base+count[first]-1 > least {
				rt.Fatalf("chunk %d: %+v; a fenced store has it up to %d only", first, o, least)
			}
		}
		b.seal = func(floor core.Seq) (core.Seq, int, error) {
			if floor > least {
				rt.Fatalf("floor %d, above what a fenced store has, %d", floor, least)
			}
			return l, n, nil
		}
		b.w.Fail("a", errors.New("fenced"))
		b.settled()
		again := make(map[uint64]bool)
		for _, c := range b.again {
			if again[c.First] {
				rt.Fatalf("chunk %d appended again twice", c.First)
			}
			again[c.First] = true
		}
		for first := uint64(1); first <= chunks; first++ {
			o, answered := p.answers()[first]
			switch {
			case answered == again[first]:
				rt.Fatalf("chunk %d: answered %v, appended again %v; want one of them", first, answered, again[first])
			case answered && (o.Status != wire.AckOK || o.Base+count[first]-1 > l):
				rt.Fatalf("chunk %d: %+v; the extent ends at %d", first, o, l)
			}
		}
	})
}
