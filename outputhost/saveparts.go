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
	parts      []saved
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

// divide tells the parts that are stored from those that may not be, and whether rows of shares that were given away
// are among the latter.
func (w groupWrite) divide(unstored []int) (stored, lost []saved, lostLate bool) {
	parts := w.end - len(w.parts) // index of the first one
	for i, p := range w.parts {
		if _, not := slices.BinarySearch(unstored, parts+i); not {
			lost = append(lost, p)
		} else {
			stored = append(stored, p)
		}
	}
	return stored, lost, countBetween(unstored, w.first, parts) > 0
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

// inTurn are the rows of a write in the order in which they are stored, for the metadata may be too slow for all of
// them in the time of a call: first those of shares that were given away, then those that something waits for, and of
// each kind first those of shares that were saved longest ago. Otherwise always the same shares might be saved. was has
// the index in w.rows of each.
func (w write) inTurn(now uint32) (rows []metadata.Row, was []int) {
	type turn struct {
		index int
		class int    // 0: the share was given away; 1: something waits for the row; 2: nothing does
		age   uint32 // ms
	}
	turns := make([]turn, len(w.rows))
	for i := range turns {
		turns[i].index = i
	}
	for _, g := range w.groups {
		first := g.end - len(g.parts)
		for i, p := range g.parts {
			turns[first+i].class, turns[first+i].age = 2, now-p.before
			if p.presses {
				turns[first+i].class = 1
			}
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.age, a.age)) })
	rows, was = make([]metadata.Row, len(turns)), make([]int, len(turns))
	for i, t := range turns {
		rows[i], was[i] = w.rows[t.index], t.index
	}
	return rows, was
}
