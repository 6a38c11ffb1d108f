package outputhost

import (
	"cmp"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// write is the checkpoints of some groups.
type write struct {
	rows          []metadata.Row
	groups        []groupWrite
	urgent, bytes int
	final         bool
}

// groupWrite is a group's part of a write: its rows from first to end, at first those of shares that were given away,
// and then those of the parts.
type groupWrite struct {
	g          *group
	first, end int
	late       []lateRow
	parts      []saved
}

// lateRow is the row of a share that was given away.
type lateRow struct {
	s      *share
	before uint32 // share.savedAt before it
}

// saved is one share's part of a write.
type saved struct {
	s     *share
	draft *dispatch.Draft
	token uint64
	epoch uint64 // of the group, then
	done  bool   // the share was consumed to its end
	l     core.Seq
	claim []byte // what is to be claimed with it, before anything more is handed out; nil: nothing

	row     metadata.Row // the checkpoint
	secure  bool         // it is to be written at Quorum, too
	presses bool         // something waits for it
	before  uint32       // share.savedAt before it
}

// writes reports whether rows of the part alone are to be written once its checkpoint is.
func (p saved) writes() bool { return p.done || p.claim != nil || p.secure }

// divide tells the parts that are stored from those that may not be, and answers which rows of shares that were given
// away may not be.
func (w groupWrite) divide(unstored []int) (stored, lost []saved, lostLate []lateRow) {
	is := func(row int) bool { _, not := slices.BinarySearch(unstored, row); return !not }
	for i, r := range w.late {
		if !is(w.first + i) {
			lostLate = append(lostLate, r)
		}
	}
	for i, p := range w.parts {
		if is(w.end - len(w.parts) + i) {
			stored = append(stored, p)
		} else {
			lost = append(lost, p)
		}
	}
	return stored, lost, lostLate
}

// shareOf is the share of a row.
func (w groupWrite) shareOf(row int) *share {
	if i := row - w.first; i < len(w.late) {
		return w.late[i].s
	}
	return w.parts[row-w.first-len(w.late)].s
}

// stored is how many of the group's rows are.
func (w groupWrite) stored(unstored []int) int {
	return w.end - w.first - countBetween(unstored, w.first, w.end)
}

// countBetween is how many of the ascending indexes are from first on and before end.
func countBetween(indexes []int, first, end int) int {
	from, _ := slices.BinarySearch(indexes, first)
	to, _ := slices.BinarySearch(indexes, end)
	return to - from
}

// urgentInTurn is how many urgent rows go before one of the others.
const urgentInTurn = 2

// inTurn are the rows of a write in the order in which they are stored, for the metadata may be too slow for all of
// them in the time of a call. Two urgent rows are followed by one of the others, so that neither kind holds up the
// other one for ever. Urgent are those that something waits for, and those of shares that were given away. Of each
// kind those of shares that were saved longest ago come first. was has the index in w.rows of each.
func (w write) inTurn(now uint32) (rows []metadata.Row, was []int) {
	type turn struct {
		index int
		age   uint32 // ms
	}
	var urgent, others []turn
	for _, g := range w.groups {
		for i, r := range g.late {
			urgent = append(urgent, turn{g.first + i, now - r.before})
		}
		for i, p := range g.parts {
			t := turn{g.end - len(g.parts) + i, now - p.before}
			if p.presses {
				urgent = append(urgent, t)
			} else {
				others = append(others, t)
			}
		}
	}
	oldest := func(a, b turn) int { return cmp.Compare(b.age, a.age) }
	slices.SortStableFunc(urgent, oldest)
	slices.SortStableFunc(others, oldest)
	rows, was = make([]metadata.Row, 0, len(w.rows)), make([]int, 0, len(w.rows))
	take := func(from *[]turn, n int) {
		n = min(n, len(*from))
		for _, t := range (*from)[:n] {
			rows, was = append(rows, w.rows[t.index]), append(was, t.index)
		}
		*from = (*from)[n:]
	}
	for len(urgent)+len(others) > 0 {
		take(&urgent, urgentInTurn)
		take(&others, 1)
	}
	return rows, was
}
