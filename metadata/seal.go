package metadata

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// SealRecord is the state of an extent; it changes by CAS only, always.
type SealRecord struct {
	Extent   core.Extent      `json:"extent"`          // a seal must not need the create row
	Before   core.ExtentID    `json:"before,omitzero"` // see ExtentRecord
	State    core.ExtentState `json:"state"`
	Floor    core.Seq         `json:"floor"` // the committed seq of the writer when it asked for the seal
	L        core.Seq         `json:"l"`     // the end seq, once State says that there is one; not below Floor, unless Forced
	Checksum uint32           `json:"checksum"`
	Bytes    uint64           `json:"bytes"`
	// Holders are the stores that hold everything up to L, or all that is left of it, see HeldTo, with their disks in the
	// same order: another disk under the name of a holder is no copy.
	Holders     []core.HostID `json:"holders"`
	HolderDisks []core.DiskID `json:"holder_disks,omitempty"`
	// Unacked: the row has never had enough holders, see Enough, so no input host has acknowledged a message because of
	// it.
	Unacked bool `json:"unacked,omitempty"`
	// Version counts the changes of the holders; a store told a newer one refuses deletions decided by an older.
	Version uint64 `json:"version,omitempty"`
	// Removal is the last decision to remove a replica of a store that is no holder.
	Removal *ReplicaRemoval `json:"removal,omitempty"`
	// Forced: an operator's word decided L; Lost is how many records above it were known to be committed.
	Forced  bool      `json:"forced,omitempty"`
	Lost    core.Seq  `json:"lost,omitempty"`
	Home    core.Home `json:"home"`    // its read scope: who reads it
	Reason  string    `json:"reason"`  // why it was sealed
	Attempt core.ID   `json:"attempt"` // of the last change, to recognise one's own after a lost answer
	Changed time.Time `json:"changed"`
	// Ended is when L was decided; zero in rows of before there was retention.
	Ended time.Time `json:"ended,omitzero"`
	// Homed is when the home was changed; zero: never. Retention counts from there.
	Homed time.Time `json:"homed,omitzero"`
	// Rate bounds how many messages per second its home begins with; 0: no bound.
	Rate int `json:"rate,omitempty"`
	// Removed has the seqs that selections have taken or that are lost, as an ack window; RemovedCount is their number.
	// Readers of the extent skip them, in every home. Neither ever shrinks.
	Removed      []byte `json:"removed,omitempty"`
	RemovedCount uint64 `json:"removed_count,omitempty"`
	// LostFrom is the first seq of the records that no store has any more and that were given up: all from there to L.
	// They are in Removed. 0: none.
	LostFrom core.Seq `json:"lost_from,omitempty"`
	// LeftChecksum is the rolling checksum of the records before LostFrom; nil in rows of older versions.
	LeftChecksum *uint32 `json:"left_checksum,omitempty"`
	// Due is the time when the last record of a timer extent is due, or later, as its writer reported; zero if the
	// writer did not report it.
	Due time.Time `json:"due,omitzero"`
}

// ReplicaRemoval is the decision that a store removes its replica of an extent which stays. It counts while the row has
// that Version.
type ReplicaRemoval struct {
	Store   core.HostID `json:"store"`
	Disk    core.DiskID `json:"disk,omitzero"`
	Version uint64      `json:"version"`
}

// DecideRemoval makes a new version of the row, by which a store that is no holder removes its replica.
func (r *SealRecord) DecideRemoval(at core.Place, now time.Time) {
	r.Version, r.Changed = r.Version+1, now
	r.Removal = &ReplicaRemoval{at.Store, at.Disk, r.Version}
}

// Removes reports whether a store removes its replica by this version: the extent is retired, or it was decided of just
// that replica.
func (r SealRecord) Removes(at core.Place, version uint64) bool {
	switch {
	case version != r.Version:
		return false
	case r.State == core.ExtentRetired:
		return true
	}
	return r.State.HasEnd() && r.Removal != nil && r.Removal.Version == version && at.Same(core.Place{Store: r.Removal.Store, Disk: r.Removal.Disk}) &&
		!slices.ContainsFunc(r.Places(), at.Same)
}

// Places are where the holders have it.
func (r SealRecord) Places() []core.Place {
	out := make([]core.Place, len(r.Holders))
	for i, id := range r.Holders {
		out[i].Store = id
		if i < len(r.HolderDisks) {
			out[i].Disk = r.HolderDisks[i]
		}
	}
	return out
}

// SetPlaces makes these the holders.
func (r *SealRecord) SetPlaces(all []core.Place) {
	r.Holders, r.HolderDisks = make([]core.HostID, len(all)), make([]core.DiskID, len(all))
	for i, x := range all {
		r.Holders[i], r.HolderDisks[i] = x.Store, x.Disk
	}
}

// Gone has the seqs that selections have taken from the extent, and those that are lost.
func (r SealRecord) Gone() (*acklevel.Window, error) {
	if len(r.Removed) == 0 {
		return &acklevel.Window{}, nil
	}
	if len(r.Removed) > MaxValue { // in memory it may be 64 times as large; a host may have named it, which is no row
		return nil, core.Errorf(core.CodeCorrupt, "what was removed of extent %s has %d bytes, and no row has more than %d", r.Extent.ID, len(r.Removed), MaxValue)
	}
	w, _, rest, err := acklevel.Decode(r.Removed, len(r.Removed))
	if err == nil && len(rest) > 0 {
		err = core.Errorf(core.CodeCorrupt, "%d bytes follow what was removed of extent %s", len(rest), r.Extent.ID)
	}
	return w, err
}

// Enough reports whether there are enough holders for an acknowledgement by this row: two, or one if the extent has one
// replica.
func (r SealRecord) Enough() bool { return len(r.Holders) >= min(2, len(r.Extent.Replicas)) }

// HeldTo returns the last seq that every holder has, and the rolling checksum there: the end of the extent, or the last
// seq before LostFrom. If some is false, no records are left, or their checksum is not known: then no copies can be
// made.
func (r SealRecord) HeldTo() (last core.Seq, checksum uint32, some bool) {
	switch {
	case r.LostFrom == 0:
		return r.L, r.Checksum, true
	case r.LostFrom == 1 || r.LeftChecksum == nil:
		return 0, 0, false
	}
	return r.LostFrom - 1, *r.LeftChecksum, true
}

// GiveUp marks the records from a seq to the end as lost; left is the rolling checksum of the records before. An extent
// without remaining records gets the home purged.
func (r *SealRecord) GiveUp(from core.Seq, left uint32, now time.Time) error {
	gone, err := r.Gone()
	if err != nil {
		return err
	}
	gone.AckRange(from, uint64(r.L-from)+1)
	r.Removed, _ = gone.Append(nil)
	r.RemovedCount = uint64(gone.Frontier()) + gone.Above()
	if r.LostFrom == 0 || from < r.LostFrom {
		r.LostFrom, r.LeftChecksum = from, &left
	}
	if r.Remaining() == 0 && r.Home.Kind == core.HomeOwn {
		r.Home, r.Homed = core.Home{Kind: core.HomePurged}, now.UTC()
	}
	r.Version, r.Attempt, r.Changed = r.Version+1, core.NewID(now), now
	return nil
}

// Remaining is the number of messages that are not removed.
func (r SealRecord) Remaining() core.Seq { return r.L - min(r.L, core.Seq(r.RemovedCount)) }

// ReadableTo is the last readable seq: the end of the extent, or the last seq before LostFrom.
func (r SealRecord) ReadableTo() core.Seq {
	if r.LostFrom > 0 {
		return r.LostFrom - 1
	}
	return r.L
}

// LastDue is the time by which all records of a sealed timer extent are due. If its writer reported none, it is the
// horizon after the seal. Zero: the extent is no timer extent, or has no end.
func (r SealRecord) LastDue() time.Time {
	switch {
	case r.Extent.Kind != core.KindTimer || !r.State.HasEnd():
		return time.Time{}
	case r.Due.IsZero():
		return r.endedAt().Add(r.Extent.Horizon.Reach())
	}
	return r.Due
}

// KeptFrom is from when on retention counts: since the end of the extent was fixed, of a timer extent since its last
// record was due, if that is later and it was not purged. Zero: it has no end.
func (r SealRecord) KeptFrom() time.Time {
	ended, due := r.endedAt(), r.LastDue()
	if due.After(ended) && r.Home.Kind != core.HomePurged {
		return due
	}
	return ended
}

// endedAt is when the end was fixed, or its home was changed since; in a row that does not say it, when that was
// changed last.
func (r SealRecord) endedAt() time.Time {
	switch {
	case !r.State.HasEnd():
		return time.Time{}
	case !r.Homed.IsZero():
		return r.Homed
	case r.Ended.IsZero():
		return r.Changed
	}
	return r.Ended
}

// SealRowLife is how long the seal row of a retired extent is kept after the stores were told to remove the extent, and
// its other rows were removed. A store that comes back within this time learns from the row that the extent is retired.
const SealRowLife = 90 * 24 * time.Hour

// SealMayHaveEnded reports whether the seal row of an extent may have ended by now: the extent is older than half of
// SealRowLife. The other half is for clocks.
func SealMayHaveEnded(id core.ExtentID, now time.Time) bool {
	return now.Sub(id.Time()) > SealRowLife/2
}
