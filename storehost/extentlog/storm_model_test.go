package extentlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// truth is what a store must say of one extent.
type truth struct {
	here, opened, fenced, sealed bool
	l                            core.Seq
	version                      uint64 // of the holders; of the removal when the extent is not here
	batches                      []wire.Batch
}

func (s *truth) last() core.Seq {
	if n := len(s.batches); n > 0 {
		return s.batches[n-1].Last()
	}
	return 0
}

func (s *truth) checksum() uint32 {
	if n := len(s.batches); n > 0 {
		return s.batches[n-1].Checksum
	}
	return 0
}

func (s *truth) bytes() (all []byte) {
	for _, b := range s.batches {
		all = append(all, b.Bytes...)
	}
	return all
}

// is reports whether a store that answers so may be in this state.
func (s *truth) is(got State, err error) bool {
	if !s.here {
		return core.CodeOf(err) == core.CodeNotFound
	}
	return err == nil && !got.Damaged && got.Opened == s.opened && got.Fenced == s.fenced &&
		got.Sealed == s.sealed && got.L == s.l && got.Version == s.version &&
		got.Last == s.last() && got.Checksum == s.checksum() && got.Bytes == uint64(len(s.bytes()))
}

func (s *truth) String() string {
	return fmt.Sprintf("{here %v, opened %v, fenced %v, sealed %v at %d, version %d, last %d of %d bytes}",
		s.here, s.opened, s.fenced, s.sealed, s.l, s.version, s.last(), len(s.bytes()))
}

// subject is one extent: what was acknowledged of it, and what may have come of the calls under way.
type subject struct {
	x    core.Extent
	run  int // in which it was opened
	now  truth
	may  []truth
	rest []wire.Batch // that a short replica still gets
}

// begin notes what calls under way may make of it.
func (m *stormModel) begin(s *subject, may ...truth) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return false
	}
	s.may = append(s.may, may...)
	return true
}

// end notes what came of it.
func (m *stormModel) end(s *subject, now truth) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.now, s.may = now, nil
}

// acknowledged notes that an append is durable: the first of what may be, of those that are not fenced.
func (m *stormModel) acknowledged(s *subject, last core.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range s.may {
		if s.may[i].last() == last && s.may[i].fenced == s.now.fenced {
			s.now = s.may[i]
			break
		}
	}
	s.may = slices.DeleteFunc(s.may, func(o truth) bool {
		return o.last() < last || o.last() == last && o.fenced == s.now.fenced
	})
}

// stormModel is what a store was told, and answered.
type stormModel struct {
	mu       sync.Mutex
	over     bool // the power is gone
	subjects []*subject
	promised []subject // when it went
}

// cut notes what was promised when the power goes. Nothing is answered before on.
func (m *stormModel) cut() (on func()) {
	m.mu.Lock()
	m.over = true
	for _, s := range m.subjects {
		m.promised = append(m.promised, subject{x: s.x, now: s.now, may: slices.Clone(s.may)})
	}
	return m.mu.Unlock
}

// stormBatch makes the next one of an extent, of random bytes.
func stormBatch(t testing.TB, random *rand.Rand, s *truth, timer bool, size int) wire.Batch {
	t.Helper()
	n := 1 + random.IntN(3)
	b := make([]byte, wire.BatchHeaderLen)
	for range n {
		r := wire.Record{Payload: make([]byte, size/n)}
		for i := range r.Payload {
			r.Payload[i] = byte(random.Uint32())
		}
		if timer {
			r.DeliverAt = 1 + random.Int64N(2000)
		}
		var err error
		b, err = wire.AppendRecord(b, &r)
		must(t, err)
	}
	base := s.last() + 1
	sum := wire.ExtendChecksum(s.checksum(), b[wire.BatchHeaderLen:])
	h := wire.BatchHeader{Count: uint32(n), Base: base, AppendTime: int64(base), Checksum: sum}
	wire.PutBatchHeader(b, h)
	out, err := wire.DecodeBatch(b)
	must(t, err)
	return out
}

// with is the state with one batch more.
func (s truth) with(all ...wire.Batch) truth {
	s.batches = append(slices.Clip(s.batches), all...)
	return s
}

// compare reads all.
func (s *truth) compare(t testing.TB, e *Engine, x core.Extent) error {
	got, err := e.State(x.ID)
	if !s.is(got, err) {
		return fmt.Errorf("extent %s is %+v, %v; want %v", x.ID, got, err, s)
	}
	if !s.here {
		return nil
	}
	var all []byte
	for from := core.Seq(1); from <= s.last(); {
		b, err := e.Read(x.ID, from, s.last(), 10<<10)
		if err != nil || len(b) == 0 {
			return fmt.Errorf("extent %s, read from %d of %d: %d bytes, %v", x.ID, from, s.last(), len(b), err)
		}
		all = append(all, b...)
		for len(b) > 0 {
			var next wire.Batch
			next, b, err = wire.NextBatch(b)
			must(t, err)
			from = next.Last() + 1
		}
	}
	if !bytes.Equal(all, s.bytes()) {
		return fmt.Errorf("extent %s: other bytes are read than were written", x.ID)
	}
	if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
		return fmt.Errorf("extent %s: %+v, %w", x.ID, v, err)
	}
	if x.Kind != core.KindTimer {
		return nil
	}
	return s.compareDue(t, e, x)
}

// compareDue reads the index of timers.
func (s *truth) compareDue(t testing.TB, e *Engine, x core.Extent) error {
	want := make(map[DueKey]string)
	for _, b := range s.batches {
		must(t, eachRecord(b, func(seq core.Seq, record []byte) {
			want[DueKey{wire.DeliverAt(record), seq}] = string(record)
		}))
	}
	var at DueKey
	var wrong error
	for more := true; more; {
		q := DueQuery{After: at, Until: NeverDue - 1, UpTo: s.last(), MaxBytes: 8 << 10}
		run, err := e.Due(x.ID, q, func(d DueRecord) {
			if want[d.DueKey] != string(d.Record) {
				wrong = fmt.Errorf("extent %s: seq %d, due at %d, is in the index, and should not be", x.ID, d.Seq, d.At)
			}
			delete(want, d.DueKey)
		})
		if err != nil || wrong != nil {
			return fmt.Errorf("extent %s, index: %v, %w", x.ID, err, wrong)
		}
		at, more = run.Passed, run.More
	}
	if len(want) > 0 {
		return fmt.Errorf("extent %s: the index lacks %d records", x.ID, len(want))
	}
	return nil
}

// remains looks for records in the database of extents that are not here, and for other batches than were written.
func (m *stormModel) remains(e *Engine) error {
	iter, err := e.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer iter.Close()
	here := make(map[core.ExtentID]*truth)
	for _, s := range m.subjects {
		if s.now.here {
			here[s.x.ID] = &s.now
		}
	}
	for _, prefix := range contents(true) {
		for ok := iter.SeekGE([]byte{prefix}); ok && iter.Key()[0] == prefix; ok = iter.Next() {
			id := core.ExtentID{ID: core.ID(iter.Key()[1:extentKeyLen])}
			s := here[id]
			if s == nil {
				return fmt.Errorf("the removed extent %s has a record %q in the database", id, prefix)
			}
			if prefix != prefixBatch {
				continue
			}
			b, err := wire.DecodeBatch(iter.Value())
			if err != nil {
				return err
			}
			known := slices.ContainsFunc(s.batches, func(o wire.Batch) bool { return bytes.Equal(o.Bytes, b.Bytes) })
			if !known && !(s.sealed && b.Base > s.l) { // what was cut off while it was drained is there, and nobody reads it
				return fmt.Errorf("extent %s: a batch at %d in the database was never written, or taken back", id, b.Base)
			}
		}
	}
	return iter.Error()
}
