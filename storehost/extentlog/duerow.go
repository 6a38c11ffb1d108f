package extentlog

import (
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// A row of the index holds records of one batch that are due soon one after another, in that order: a row for each of
// them would cost a memtable and a table ten times the work. Its key is that of its first record. Rows overlap, so a
// reader merges them.

const (
	dueSpan    = 256      // ms: the last record of a row is due less than so long after its first
	dueRowSize = 16 << 10 // bytes: a row that has as much takes no further record
	dueStep    = 4        // bytes of a further record's distance in seqs from the first one, i32
)

// dueEntry is a record on its way to the index.
type dueEntry struct {
	DueKey
	record []byte
}

// dueEntries are the entries of a batch, added in the order of their seqs. Sorting moves small keys many times, and
// each entry only once.
type dueEntries struct {
	added, sorted []dueEntry
	places        []duePlace
}

// duePlace is when an entry is due, and where it was added.
type duePlace struct {
	at int64
	i  int32
}

func (d *dueEntries) add(e dueEntry) {
	d.places = append(d.places, duePlace{e.At, int32(len(d.added))})
	d.added = append(d.added, e)
}

// inOrder are the entries in the order in which they are due, until reset.
func (d *dueEntries) inOrder() []dueEntry {
	slices.SortFunc(d.places, func(a, b duePlace) int {
		if a.at > b.at || a.at == b.at && a.i > b.i {
			return 1
		}
		return -1
	})
	for _, p := range d.places {
		d.sorted = append(d.sorted, d.added[p.i])
	}
	return d.sorted
}

// reset forgets all, and keeps the room.
func (d *dueEntries) reset() {
	clear(d.added)
	clear(d.sorted)
	d.added, d.sorted, d.places = d.added[:0], d.sorted[:0], d.places[:0]
}

// dueRowOf is how many of the entries, which are in order, make the next row, and the size of its value.
func dueRowOf(entries []dueEntry) (n, size int) {
	size = dueFixed - dueStep
	for n < len(entries) && (n == 0 || size < dueRowSize && entries[n].At-entries[0].At < dueSpan) {
		size += dueStep + len(entries[n].record)
		n++
	}
	return n, size
}

// putDueRow writes a row's value.
func putDueRow(value []byte, row []dueEntry, enqueued int64) {
	binary.LittleEndian.PutUint64(value, uint64(enqueued))
	b := value[:dueFixed]
	for i, r := range row {
		if i > 0 {
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(int64(r.Seq)-int64(row[0].Seq))))
		}
		b = append(b, r.record...)
	}
}

// dueRow is a row that is being read, at one of its records.
type dueRow struct {
	DueRecord
	first DueKey
	rest  []byte // behind the record
	held  int    // bytes of both, as they were kept
}

// begin reads the first record.
func (r *dueRow) begin(first DueKey, value []byte) (sound bool) {
	if len(value) <= dueFixed {
		return false
	}
	r.first, r.DueKey = first, first
	r.Enqueued = int64(binary.LittleEndian.Uint64(value))
	return r.read(value[dueFixed:]) && r.At == first.At
}

// next reads the one behind; there must be some bytes.
func (r *dueRow) next() (sound bool) {
	before := r.DueKey
	if len(r.rest) < dueStep {
		return false
	}
	r.Seq = core.Seq(int64(r.first.Seq) + int64(int32(binary.LittleEndian.Uint32(r.rest))))
	return r.read(r.rest[dueStep:]) && r.Beyond(before) && r.At-r.first.At < dueSpan
}

func (r *dueRow) read(b []byte) bool {
	record, rest, err := wire.NextRecord(b)
	if err != nil {
		return false
	}
	if n, err := wire.CheckRecords(record, wire.MaxPayload); err != nil || n != 1 {
		return false
	}
	r.Record, r.rest, r.At = record, rest, wire.DeliverAt(record)
	return true
}

// skip moves on to the first record beyond a place; some is false when there is none.
func (r *dueRow) skip(after DueKey) (some, sound bool) {
	for !r.Beyond(after) {
		if len(r.rest) == 0 {
			return false, true
		}
		if !r.next() {
			return false, false
		}
	}
	return true, true
}

// dueMerge is a heap of rows by the record they are at. However many rows overlap, it keeps the bytes of some only: of
// the others it knows their places, and they are read again when their turn comes.
type dueMerge struct {
	rows []dueRow
	held int // bytes that are kept
	most int // that may be, beside those of the first row
}

// push adds a row, whose bytes may change afterwards.
func (m *dueMerge) push(r dueRow) {
	if m.held+len(r.Record)+len(r.rest) <= m.most {
		r.keep()
	} else {
		r.Record, r.rest = nil, nil
	}
	m.insert(r)
}

// insert adds a row whose bytes it may keep.
func (m *dueMerge) insert(r dueRow) {
	m.held += r.held
	m.rows = append(m.rows, r)
	rows := m.rows
	for i := len(rows) - 1; i > 0; {
		parent := (i - 1) / 2
		if rows[i].Beyond(rows[parent].DueKey) {
			return
		}
		rows[i], rows[parent] = rows[parent], rows[i]
		i = parent
	}
}

// keep copies what is left of a row.
func (r *dueRow) keep() {
	n := len(r.Record)
	b := append(append(make([]byte, 0, n+len(r.rest)), r.Record...), r.rest...)
	r.Record, r.rest, r.held = b[:n:n], b[n:], len(b)
}

// drop forgets the bytes of a row.
func (m *dueMerge) drop(r *dueRow) {
	m.held -= r.held
	r.Record, r.rest, r.held = nil, nil, 0
}

// lacks reports whether the bytes of the first row have to be read again, and where it begins.
func (m *dueMerge) lacks() (first DueKey, lacks bool) {
	return m.rows[0].first, m.rows[0].Record == nil
}

// fill gives them to it.
func (m *dueMerge) fill(value []byte) (sound bool) {
	var r dueRow
	at := m.rows[0].DueKey
	if !r.begin(m.rows[0].first, value) {
		return false
	}
	for at.Beyond(r.DueKey) {
		if !r.next() {
			return false
		}
	}
	r.keep()
	m.held += r.held
	m.rows[0] = r
	return r.DueKey == at
}

// mostOpen bounds the rows that the next query is told of one by one, openHeld the bytes of them that it is given, so
// that it does not look for them in the index again: many rows overlap where messages fail for as long as others.
const (
	mostOpen = 64
	openHeld = 512 << 10
)

// start is where the next query finds what is left of the rows, and those that begin at next or beyond. The
// merge is not used after it.
func (m *dueMerge) start(next DueKey) (s DueStart) {
	if next == (DueKey{}) || len(m.rows) == 0 {
		return DueStart{From: next}
	}
	if len(m.rows) > mostOpen {
		s.From = next
		for i := range m.rows {
			s.Lower(m.rows[i].first)
		}
		return s
	}
	s = DueStart{From: next, Open: make([]OpenRow, len(m.rows))}
	held := 0
	for i := range m.rows {
		if held += m.rows[i].held; held > openHeld {
			m.drop(&m.rows[i])
		}
		s.Open[i] = OpenRow{m.rows[i].first, m.rows[i]}
	}
	return s
}

// pop moves the row on that is at the first record of all, and has its bytes.
func (m *dueMerge) pop() (sound bool) {
	rows := m.rows
	if len(rows[0].rest) > 0 {
		if !rows[0].next() {
			return false
		}
		if m.held > m.most {
			m.drop(&rows[0])
		}
	} else {
		m.drop(&rows[0])
		last := len(rows) - 1
		rows[0], rows[last] = rows[last], dueRow{}
		rows = rows[:last]
		m.rows = rows
	}
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(rows); child++ {
			if rows[least].Beyond(rows[child].DueKey) {
				least = child
			}
		}
		if least == i {
			return true
		}
		rows[i], rows[least] = rows[least], rows[i]
		i = least
	}
}
