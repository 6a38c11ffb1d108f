package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/repair/backlog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// String describes the records of the store.
func (x remainder) String() string { return fmt.Sprintf("%s up to %d%s", x.ID, x.last, x.flaw) }

// left has the records that stores still have of an extent without a readable holder.
type left struct {
	on   []remainder
	away []core.HostID // may have all of it, and do not answer
	mute []core.HostID // the same of stores that answer, and could not tell just now
}

// remainder has the records that one store has of an extent.
type remainder struct {
	catalog.Store
	holder    bool
	told      bool // the end: it shows readers all that it has
	written   bool // by the extent's writer, and not copied
	last      core.Seq
	checksum  uint32   // rolling, of all that
	committed core.Seq // as far as it knows
	flaw      string   // why it cannot be read; "": it can
}

// mayHave are the stores that may have all of it, and did not tell.
func (l *left) mayHave() []core.HostID { return slices.Concat(l.away, l.mute) }

// upTo is the last seq of the longest readable remainder.
func (l *left) upTo() (last core.Seq) {
	for _, x := range l.on {
		if x.flaw == "" {
			last = max(last, x.last)
		}
	}
	return last
}

// checksum is the rolling checksum at upTo. A replica that the writer wrote is preferred to a copied one.
func (l *left) checksum() (sum uint32) {
	written, last := false, l.upTo()
	for _, x := range l.on {
		if x.flaw == "" && x.last == last && !written {
			sum, written = x.checksum, x.written
		}
	}
	return sum
}

// String lists the stores with their records.
func (l *left) String() string {
	if len(l.on) == 0 {
		return "no replica was found"
	}
	var texts []string
	for _, x := range l.on {
		texts = append(texts, x.String())
	}
	return "there is " + strings.Join(texts, ", ")
}

// look asks the stores which records they have of an extent. Stores that never had the extent are asked, but not
// changed.
func (r *Runner) look(ctx context.Context, e catalog.Extent, row metadata.SealRecord, known map[core.HostID]catalog.Store) *left {
	l := &left{away: mayComeBack(e, known)}
	end, sum, some := row.HeldTo()
	for _, st := range answering(e, known) {
		is, err := r.replicas.Get(ctx, row.Extent.ID, st.Place())
		switch {
		case core.CodeOf(err) == core.CodeNotFound && row.L > 0:
			continue
		case core.CodeOf(err) == core.CodeNotFound: // whoever has nothing has all of nothing
			l.on = append(l.on, remainder{Store: st})
			continue
		case err != nil:
			l.mute = append(l.mute, st.ID)
			continue
		}
		x := remainder{
			Store: st, holder: slices.ContainsFunc(e.Holders, st.Place().Same), told: is.Sealed, written: is.Opened, last: core.Seq(is.Last),
			checksum: is.Checksum, committed: core.Seq(is.Committed),
		}
		switch {
		case is.Damaged:
			x.flaw = ", damaged"
		case x.last == row.L && is.Checksum != row.Checksum, x.last == end && is.Checksum != sum:
			x.flaw = ", of another content"
		case some && row.LostFrom > 0 && x.last > end: // it has some of what was given up
			at, whole, err := r.replicas.Checksum(ctx, row.Extent.ID, st.Place(), end)
			switch {
			case core.CodeOf(err) == core.CodeCorrupt:
				x.flaw = ", damaged"
			case err != nil:
				l.mute = append(l.mute, st.ID)
				continue
			case !whole, at != sum:
				x.flaw = ", of another content"
			}
		}
		l.on = append(l.on, x)
	}
	return l
}

// show has readers get all that is left: replicas without the end show no more than they know as committed, and who is
// none of the replicas, and has more of it from a copy that was under way, is not asked by readers.
func (r *Runner) show(ctx context.Context, e catalog.Extent, row metadata.SealRecord, l *left, known map[core.HostID]catalog.Store) error {
	tell := func(x *remainder) error {
		err := r.replicas.Seal(ctx, row, x.Place(), row.Version)
		switch core.CodeOf(err) {
		case core.CodeIncomplete:
			err = nil
		case core.CodeCorrupt:
			x.flaw, err = ", damaged", nil
		}
		if err != nil {
			return core.Errorf(core.CodeOf(err), "tell store %s its end: %w", x.ID, err)
		}
		x.told = true
		return nil
	}
	var longest *remainder
	var asks []*remainder // whom readers ask
	for i := range l.on {
		x := &l.on[i]
		if x.flaw == "" && !x.told && x.last < row.L {
			if err := tell(x); err != nil {
				return err
			}
		}
		if x.flaw != "" {
			continue
		}
		if longest == nil || x.last > longest.last {
			longest = x
		}
		if isReplica(e, x.ID) || e.Holds(x.ID) {
			asks = append(asks, x)
		}
	}
	if longest == nil || slices.ContainsFunc(asks, func(x *remainder) bool { return x.last >= longest.last }) {
		return nil
	}
	asked, err := r.shorter(ctx, e.ID, *longest, asks)
	if err != nil {
		return err
	}
	if asked == nil {
		at := slices.IndexFunc(e.Replicas, func(id core.HostID) bool {
			return known[id].Answering() && !slices.ContainsFunc(l.on, func(x remainder) bool { return x.ID == id })
		})
		if at < 0 {
			return nil // all of them have it damaged, or have another content
		}
		asked = &remainder{Store: known[e.Replicas[at]]}
		_, err := r.replicas.Fence(ctx, row.Extent, asked.Place(), row.Version+1)
		if err == nil {
			err = tell(asked)
		}
		if err != nil {
			return err
		}
	}
	if _, err := r.replicas.Copy(ctx, e.ID, longest.Place(), asked.Place(), asked.last+1, longest.last, nil); err != nil {
		return core.Errorf(core.CodeOf(err), "copy what is left of it from %s to %s: %w", longest.ID, asked.ID, err)
	}
	return nil
}

// shorter is who has the most of what the longest one has, nothing else, and so can get the rest of it; nil: nobody
// does.
func (r *Runner) shorter(ctx context.Context, id core.ExtentID, longest remainder, among []*remainder) (out *remainder, err error) {
	for _, x := range among {
		if out != nil && x.last <= out.last {
			continue
		}
		sum, whole := uint32(0), true
		if x.last > 0 {
			if sum, whole, err = r.replicas.Checksum(ctx, id, longest.Place(), x.last); err != nil {
				return nil, core.Errorf(core.CodeOf(err), "compare what is left on %s and %s: %w", longest.ID, x.ID, err)
			}
		}
		if x.last == 0 || whole && sum == x.checksum {
			out = x
		}
	}
	return out, nil
}

// promote makes a holder of a replica that has everything up to the end and is none, when no holder can be copied from:
// its rolling checksum at the end is the row's, so its bytes are the extent's. When nobody is away who may have it, the
// end of the extent is lost: it is given up if nothing that is lost can have been acknowledged, else kept until
// somebody turns up.
func (r *Runner) promote(ctx context.Context, e catalog.Extent, row metadata.SealRecord, known map[core.HostID]catalog.Store) error {
	l := r.look(ctx, e, row, known)
	end, _, _ := row.HeldTo()
	for i, x := range l.on {
		if x.flaw != "" || x.last < end {
			continue
		}
		if x.holder && r.doubts(e.ID, x.Place()) { // it has all of it after all
			r.trust(e.ID)
			r.backlog.Found(e.ID)
			return nil
		}
		if x.holder { // it could not be copied from just now
			l.mute = append(l.mute, x.ID)
			continue
		}
		made, err := r.copyTo(ctx, row, core.Place{}, x.Store, nil)
		if err == nil {
			r.cfg.Log.Warn("a replica that was no holder is made one: no holder can be read", "extent", e.ID, "store", x.ID, "holders", row.Holders)
			return r.gained(ctx, made, x.Place(), known, true)
		}
		if !readsAsOther(err) {
			l.mute = append(l.mute, x.ID)
		}
		l.on[i].flaw = ", of another content"
	}
	if may := l.mayHave(); len(may) > 0 {
		r.backlog.Found(e.ID)
		err := core.Errorf(core.CodeUnavailable, "no store that answers has it up to seq %d, %v may have it; %s", end, may, l)
		if len(l.mute) == 0 {
			err.Err = backlog.ErrAway
		}
		return err
	}
	if err := r.show(ctx, e, row, l, known); err != nil {
		r.backlog.Found(e.ID)
		return err
	}
	if unacknowledged(e, row, l) {
		_, err := r.giveUp(ctx, row, l, false)
		return err
	}
	if r.backlog.Lost(e.ID) {
		r.cfg.Log.Error("the end of an extent is lost: no store has it any more", "extent", e.ID, "queue", e.Queue, "end_seq", end, "replicas", e.Replicas, "left", l.String())
	}
	return core.Errorf(core.CodeUnavailable, "no store has it up to seq %d any more, bring back a disk that had it, or give up what is lost by `columba seal --force`; %s", end, l)
}

// unacknowledged reports whether nothing beyond what is left was acknowledged: not by the end of the extent, for that
// many holders there never were, and not before it, for then every replica had it, and one of them is there, as it was.
// If records were given up before, this proves nothing: the copies made since then do not tell whether they are
// unchanged.
func unacknowledged(e catalog.Extent, row metadata.SealRecord, l *left) bool {
	upTo, survives := l.upTo(), false
	for _, x := range l.on {
		if x.committed > upTo {
			return false
		}
		onItsDisk := isReplica(e, x.ID) && !x.Identity.Disk.IsZero() && x.Identity.Disk == e.Disk(x.ID)
		asItWas := x.written && x.last >= x.committed && !x.holder // a holder has lost what it was seen to have
		survives = survives || x.flaw == "" && onItsDisk && asItWas
	}
	return row.Unacked && row.LostFrom == 0 && survives && upTo >= row.Floor
}

// ErrQuarantined: replicas that are damaged, or of another content, go beyond all that can be read. Nothing reads them,
// but a person may.
var ErrQuarantined = errors.New("damaged copies go beyond what is left")

// ErrAway: stores that do not answer may have what is lacking.
var ErrAway = errors.New("stores are away that may have what is lacking")

// quarantined are the replicas that go beyond all that can be read, and cannot be read themselves.
func (l *left) quarantined() (out []string) {
	upTo := l.upTo()
	for _, x := range l.on {
		if x.flaw != "" && x.last > upTo {
			out = append(out, x.String())
		}
	}
	return out
}

// GiveUp gives up what no store has any more of an extent, by an operator's word. CodeConflict: a store has all of it.
// Two of them are told apart: ErrAway, a store may have it, and ErrQuarantined, a copy has more that cannot be read,
// and the operator did not say that this is given up, too.
func (r *Runner) GiveUp(ctx context.Context, row metadata.SealRecord, quarantined bool) (metadata.SealRecord, error) {
	r.cfg.Extents.Took(row) // another controller may have made holders
	e, ok := r.cfg.Extents.Get(row.Extent.ID)
	if !ok {
		return row, core.Errorf(core.CodeNotFound, "extent %s is gone", row.Extent.ID)
	}
	known := r.cfg.Stores.Snapshot()
	l := r.look(ctx, e, row, known)
	switch {
	case row.LostFrom > 0 && l.upTo() >= row.ReadableTo(): // asked again
		return row, nil
	case l.upTo() >= row.L:
		return row, core.Errorf(core.CodeConflict, "all of it is there: %s", l)
	case len(l.mayHave()) > 0:
		return row, core.Errorf(core.CodeConflict, "extent %s goes up to %d of %d on the stores that answer, and nothing is given up: %w: %v; start them, or, where a disk is gone for good, "+
			"start a store with its old host.json and without store/, then give the command again", e.ID, l.upTo(), row.L, ErrAway, l.mayHave())
	case !quarantined && len(l.quarantined()) > 0:
		return row, core.Errorf(core.CodeConflict, "%w, which ends at seq %d: %s; stop a store and look with `columba inspect` at what it has, it is removed when this is given up by --give-up-quarantined",
			ErrQuarantined, l.upTo(), strings.Join(l.quarantined(), ", "))
	}
	if err := r.show(ctx, e, row, l, known); err != nil {
		return row, core.Errorf(core.CodeOf(err), "give up what is lost of extent %s: %w", e.ID, err)
	}
	return r.giveUp(ctx, row, l, true)
}

// giveUp takes the lost records out of the extent, so that its readers go on. Records that the writer has acknowledged
// are given up only by an operator's command.
func (r *Runner) giveUp(ctx context.Context, row metadata.SealRecord, l *left, forced bool) (metadata.SealRecord, error) {
	from := l.upTo() + 1
	holders := r.holdersOf(ctx, row, l)
	next, err := metadata.Change(ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(row.Extent.ID), func(s *metadata.SealRecord) error {
		switch {
		case s.State != core.ExtentSealed || s.Version != row.Version:
			return core.Errorf(core.CodeConflict, "its holders, or its state, changed meanwhile")
		case s.Floor >= from && !forced:
			return core.Errorf(core.CodeConflict, "its writer has acknowledged up to %d", s.Floor)
		case s.LostFrom > 0 && s.LostFrom <= from:
			return metadata.ErrNoChange
		}
		if len(holders) > 0 {
			s.SetPlaces(holders)
		}
		return s.GiveUp(from, l.checksum(), r.cfg.Now())
	})
	if err != nil {
		return row, core.Errorf(core.CodeOf(err), "give up what is lost of extent %s: %w", row.Extent.ID, err)
	}
	r.cfg.Extents.Took(next)
	r.backlog.Add(row.Extent.ID, true) // what is left may lack copies
	r.cfg.Log.Warn("the end of an extent is given up: no store has it any more", "extent", row.Extent.ID, "queue", row.Extent.Queue, "from", from, "end_seq", row.L, "acknowledged", !row.Unacked, "left", l.String())
	return next, nil
}

// holdersOf are the stores that hold all that is left. They know the version by which they do before the row says so. A
// store that is not among them becomes a holder by a copy; all earlier holders have been asked.
func (r *Runner) holdersOf(ctx context.Context, row metadata.SealRecord, l *left) (out []core.Place) {
	given, sum := row, l.checksum()
	given.LostFrom, given.LeftChecksum = l.upTo()+1, &sum
	if _, _, some := given.HeldTo(); !some {
		return nil
	}
	for _, x := range l.on {
		if x.flaw == "" && x.last >= l.upTo() && r.keep(ctx, given, x.Place()) == nil {
			out = append(out, x.Place())
		}
	}
	return out
}

// readsAsOther reports whether a replica turned out to be another than the row's when it was to become a holder.
func readsAsOther(err error) bool {
	return core.CodeOf(err) == core.CodeCorrupt || core.CodeOf(err) == core.CodeIncomplete
}

// answering are the stores that answer, the extent's first ones first.
func answering(e catalog.Extent, known map[core.HostID]catalog.Store) (out []catalog.Store) {
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if st := known[id]; st.Answering() {
			out = append(out, st)
		}
	}
	slices.SortStableFunc(out, func(a, b catalog.Store) int { return boolInt(isReplica(e, b.ID)) - boolInt(isReplica(e, a.ID)) })
	return out
}

// mayComeBack are the stores that had a replica and do not answer; those that came back with another disk will not.
func mayComeBack(e catalog.Extent, known map[core.HostID]catalog.Store) (out []core.HostID) {
	places := slices.Clone(e.Holders)
	for _, id := range e.Replicas {
		if !e.Holds(id) {
			places = append(places, core.Place{Store: id, Disk: e.Disk(id)})
		}
	}
	for _, x := range places {
		if !known[x.Store].Answering() && !contradicts(x, known) {
			out = append(out, x.Store)
		}
	}
	return out
}
