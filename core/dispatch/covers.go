package dispatch

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
)

// Version names a version of a share's row: the run of the owner that wrote it, and when. The later of two rows that
// one run wrote of a share knows all that the earlier one knew, also in another epoch, unless there was no room for all
// of it in the later one. Stamps of two runs say nothing of each other.
type Version struct {
	Run     core.RunID
	Written int64 // unix µs, by the clock of that run
}

// Saved is a row of a share.
type Saved struct {
	Version
	State
	Since int64 // stamp of an earlier version, from which on its owner only settled messages; 0: none is known
}

// least is the version that has to be covered for the row to be.
func (r Saved) least() Version {
	v := r.Version
	if r.Since > 0 {
		v.Written = min(v.Written, r.Since)
	}
	return v
}

const (
	// MaxCovers bounds the versions that a checkpoint covers. Rows of further runs are merged as if nobody had resumed the
	// share from them.
	MaxCovers = 32
	// coverLeast is how many bytes a version takes, at least.
	coverLeast = len(core.ID{}) + 1
)

// covers are versions of the rows that an owner knows all of, by rising runs, one of each. An older version of a run is
// covered, too. The slice is not changed once it is made, because drafts have it.
type covers []Version

// with is c that covers one more version, if there is room. Versions of two runs cannot be compared, so none makes room
// for another one.
func (c covers) with(v Version) covers {
	i, there := c.find(v.Run)
	switch {
	case v.Run.IsZero() || v.Written <= 0: // by a controller, and without unsettled messages; or by a clock that is not set
		return c
	case !there && len(c) >= MaxCovers:
		return c
	case !there:
		return slices.Insert(slices.Clone(c), i, v)
	case c[i].Written >= v.Written:
		return c
	}
	out := slices.Clone(c)
	out[i] = v
	return out
}

func (c covers) find(run core.RunID) (i int, there bool) {
	return slices.BinarySearchFunc(c, run, func(v Version, run core.RunID) int { return compareRuns(v.Run, run) })
}

func compareRuns(a, b core.RunID) int { return bytes.Compare(a.ID[:], b.ID[:]) }

// has reports whether a version is covered.
func (c covers) has(v Version) bool {
	i, there := c.find(v.Run)
	return there && v.Written <= c[i].Written
}

// until is the latest version of a run that is covered; 0: none is.
func (c covers) until(run core.RunID) int64 {
	if i, there := c.find(run); there {
		return c[i].Written
	}
	return 0
}

func (c covers) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c)))
	for _, v := range c {
		b = append(b, v.Run.ID[:]...)
		b = binary.AppendUvarint(b, uint64(v.Written))
	}
	return b
}

// covers reads what append wrote.
func (d *decoder) covers() (out covers) {
	n := int(d.uvarint(MaxCovers))
	if d.must(n*coverLeast <= len(d.b)); d.bad || n == 0 {
		return nil
	}
	out = make(covers, n)
	for i := range out {
		if d.must(len(d.b) >= coverLeast); d.bad {
			return nil
		}
		v := Version{Run: core.RunID{ID: core.ID(d.b[:len(core.ID{})])}}
		d.b = d.b[len(v.Run.ID):]
		v.Written = int64(d.uvarint(1<<63 - 1))
		d.must(!v.Run.IsZero() && (i == 0 || compareRuns(out[i-1].Run, v.Run) < 0)) // they rise
		out[i] = v
	}
	return out
}

// Cover notes that the share knows all that a version of another row tells, and so do its checkpoints from now on.
func (s *Share) Cover(v Version) { s.covers = s.covers.with(v) }

// Covers reports whether the share knows all that a version of another row tells.
func (s *Share) Covers(v Version) bool { return s.covers.has(v) }

// CoverNothing is for when no row of another owner is left.
func (s *Share) CoverNothing() { s.covers = nil }

// MergeSaved joins all rows of a share that count. An owner that resumes from a row covers it in its own, which is past
// it: a message that was given back, say, has no entry there any more. So of a row that another one covers only this
// counts:
//
//   - what is done,
//   - that a message may be in a built-in queue already.
//
// The state covers the rows that have entries, and then, while there is room, what they cover: those rows may be gone.
// Of policies the state of the first row that is not covered stays.
func MergeSaved(rows []Saved) (st State) {
	covered := coveredOf(rows)
	for i, r := range rows {
		if !covered[i] {
			st.Merge(r.State)
		}
	}
	for i, r := range rows {
		if covered[i] {
			st.MergeCovered(r.State)
		}
		if r.Pending() > 0 {
			st.covers = st.covers.with(r.Version)
		}
	}
	for _, r := range rows {
		for _, v := range r.covers {
			st.covers = st.covers.with(v)
		}
	}
	return st
}

// coveredOf says which rows are covered, from those on that nothing covers. Rows that cover each other in a ring all
// count: no owner writes such rows, and nothing is lost by them.
func coveredOf(rows []Saved) []bool {
	by := func(i, j int) bool { return i != j && rows[j].covers.has(rows[i].least()) }
	var found []int // that nothing covers, and then those that are covered
	covered := make([]bool, len(rows))
	for i := range rows {
		free := true
		for j := range rows {
			free = free && !by(i, j)
		}
		if free {
			found = append(found, i)
		}
	}
	for k := 0; k < len(found); k++ {
		for i := range rows {
			if by(i, found[k]) && !covered[i] {
				covered[i] = true
				found = append(found, i)
			}
		}
	}
	return covered
}

// MergeCovered joins a state that st covers: of unsettled messages only that they may be in a built-in queue.
func (st *State) MergeCovered(o State) {
	rest := State{policies: o.policies, told: o.told, done: o.done}
	for seq, e := range o.messages {
		if e.kind != kindTransferring || e.held {
			continue
		}
		if now, there := st.messages[seq]; there && now.kind == kindTransferring && now.to == e.to && !now.held {
			continue // it says so itself
		}
		if rest.messages == nil {
			rest.messages = make(map[core.Seq]entry)
		}
		rest.messages[seq] = e
	}
	st.Merge(rest)
}

// CoveredUntil is the latest version of a run's row that rows of others cover; 0: there is none.
func CoveredUntil(rows []Saved, run core.RunID) (written int64) {
	for _, r := range rows {
		if r.Run != run {
			written = max(written, r.covers.until(run))
		}
	}
	return written
}

// Follows reports whether a later state of the same owner tells of unsettled messages nothing but what before told: it
// has only settled some. Whether a consumer holds a message does not matter, because a later owner judges by the
// checkpoint from which it resumed.
func (st *State) Follows(before State) bool {
	for seq, e := range st.messages {
		was, there := before.messages[seq]
		e.held, was.held, e.text, was.text = false, false, "", ""
		if !there || e != was {
			return false
		}
	}
	return true
}
