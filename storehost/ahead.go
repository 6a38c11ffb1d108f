package storehost

import (
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// ahead keeps records of a timer extent that are due soon, or due and not sent yet, in the order in which they are. It
// is bounded: what is due last leaves for what is due before it.
type ahead struct {
	items []soon
	head  int    // items before it have left
	arena []byte // records, in the order in which they came
	bytes int    // of the items that are there, with their cost
}

// soon is one of them; its record is arena[at:at+size].
type soon struct {
	extentlog.DueKey
	enqueued int64
	at, size int
}

const (
	maxAhead  = 512 << 10 // one larger record is there alone
	aheadCost = 64        // of an item, beside its record
	keptArena = 1 << 20   // of an empty one
)

func (a *ahead) empty() bool { return a.head == len(a.items) }

// first is the one due first; there must be one.
func (a *ahead) first() *soon { return &a.items[a.head] }

// push adds a record behind all others; the caller keeps within maxAhead.
func (a *ahead) push(r extentlog.DueRecord) { a.put(len(a.items), r) }

// insert adds a record in its place. When that makes it too many, those due last leave: left is the first of them.
func (a *ahead) insert(r extentlog.DueRecord) (left extentlog.DueKey, some bool) {
	i, _ := slices.BinarySearchFunc(a.items[a.head:], r.DueKey, func(s soon, k extentlog.DueKey) int {
		if s.Beyond(k) {
			return 1
		}
		return -1
	})
	a.put(a.head+i, r)
	for n := len(a.items) - 1; a.bytes > maxAhead && n > a.head; n-- {
		left, some = a.items[n].DueKey, true
		a.bytes -= a.items[n].size + aheadCost
		a.items = a.items[:n]
	}
	a.compact()
	return left, some
}

func (a *ahead) put(i int, r extentlog.DueRecord) {
	at := len(a.arena)
	a.arena = append(a.arena, r.Record...)
	a.items = slices.Insert(a.items, i, soon{r.DueKey, r.Enqueued, at, len(r.Record)})
	a.bytes += len(r.Record) + aheadCost
}

// compact drops the bytes of records that are not there any more, when they are the most.
func (a *ahead) compact() {
	if len(a.arena) <= 2*max(a.bytes, maxAhead) {
		return
	}
	kept := make([]byte, 0, a.bytes)
	for i := a.head; i < len(a.items); i++ {
		s := &a.items[i]
		kept = append(kept, a.arena[s.at:s.at+s.size]...)
		s.at = len(kept) - s.size
	}
	a.arena = kept
}

// due counts the records that are due at or before until, as many as fit into a frame of most bytes, at least one, and
// sums their sizes.
func (a *ahead) due(until int64, most int) (n, bytes int) {
	for _, s := range a.items[a.head:] {
		if s.At > until || n == wire.MaxDueRecords || n > 0 && wire.DueLen(n+1, bytes+s.size) > most {
			break
		}
		n++
		bytes += s.size
	}
	return n, bytes
}

// take moves the first n records out: their entries and bytes are appended.
func (a *ahead) take(n int, entries []wire.DueEntry, records []byte) ([]wire.DueEntry, []byte) {
	for _, s := range a.items[a.head : a.head+n] {
		entries = append(entries, wire.DueEntry{Seq: s.Seq, Enqueued: s.enqueued})
		records = append(records, a.arena[s.at:s.at+s.size]...)
		a.bytes -= s.size + aheadCost
	}
	if a.head += n; a.empty() {
		a.items, a.head, a.arena = a.items[:0], 0, a.arena[:0]
		if cap(a.arena) > keptArena {
			a.arena = nil
		}
	}
	return entries, records
}

// before is the place just in front of a record's.
func before(k extentlog.DueKey) extentlog.DueKey {
	return extentlog.DueKey{At: k.At, Seq: k.Seq - min(k.Seq, core.Seq(1))}
}
