package extentlogtest

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

// versions: the highest one is kept, over restarts too, and an older decision removes nothing.
func versions(f *fixture) {
	e, w := f.opened(2)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	wantCode(f.t, f.Seal(e.ID, w.Last+1, 1, 3), core.CodeIncomplete) // kept all the same: the store is about to become a holder
	f.expectVersion(e.ID, 3)
	sealed, sw := f.opened(1)
	s, err := f.Fence(sealed, 9)
	must(f.t, err)
	if s.Version != 0 {
		f.t.Fatalf("fence answered version %d, but only seals are told the holders'", s.Version)
	}
	for _, v := range []uint64{0, 5, 4} {
		must(f.t, f.Seal(sealed.ID, sw.Last, sw.Checksum, v))
	}
	_, err = f.Fence(sealed, 1)
	must(f.t, err)
	f.reopen()
	f.expectVersion(e.ID, 3)
	f.expectVersion(sealed.ID, 5)
	wantCode(f.t, f.Remove(sealed.ID, 4), core.CodeConflict)
	wantCode(f.t, f.Remove(sealed.ID, 0), core.CodeConflict)
	ReadAll(f.t, f, sealed.ID, sw.Last, noLimit)
	must(f.t, f.Remove(sealed.ID, 5))
	must(f.t, f.Remove(sealed.ID, 5))
	must(f.t, f.Remove(sealed.ID, 1)) // it is gone, as was asked
	_, err = f.State(sealed.ID)
	wantCode(f.t, err, core.CodeNotFound)
}

func (f *fixture) expectVersion(id core.ExtentID, want uint64) {
	f.t.Helper()
	if s := f.state(id); s.Version != want {
		f.t.Fatalf("version %d, want %d", s.Version, want)
	}
}

// removedStaysAway: nothing that was on its way brings a removed extent back, only a newer decision does, and never its
// writer.
func removedStaysAway(f *fixture) {
	e, w := f.opened(2)
	unheard := Extent()
	_, err := f.Fence(e, 0)
	must(f.t, err)
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 7))
	must(f.t, Remove(f, e, 8))
	must(f.t, Remove(f, unheard, 8))
	for range 2 {
		for _, gone := range []core.Extent{e, unheard} {
			wantCode(f.t, f.Open(gone), core.CodeFenced)
			wantCode(f.t, f.copied(gone.ID, new(Writer).Batch(1, 1)), core.CodeNotFound)
			wantCode(f.t, f.Seal(gone.ID, 0, 0, 9), core.CodeNotFound)
			for _, v := range []uint64{0, 7, 8} {
				_, err := f.Fence(gone, v)
				wantCode(f.t, err, core.CodeConflict)
			}
			_, err := Append(f, gone.ID, new(Writer).Batch(1, 1), 0)
			wantCode(f.t, err, core.CodeNotFound)
			_, err = f.State(gone.ID)
			wantCode(f.t, err, core.CodeNotFound)
		}
		f.reopen()
	}
	back := new(Writer)
	_, err = f.Fence(e, 9)
	must(f.t, err)
	must(f.t, f.copied(e.ID, back.Batch(3, 100)))
	f.expectVersion(e.ID, 8)
	wantCode(f.t, f.Remove(e.ID, 7), core.CodeConflict)
	f.reopen()
	wantCode(f.t, f.Open(e), core.CodeFenced)
	must(f.t, f.Seal(e.ID, back.Last, back.Checksum, 9))
	ReadAll(f.t, f, e.ID, back.Last, noLimit)
}

// copyRuns: several batches at once are all taken, or none.
func copyRuns(f *fixture) {
	e, w := f.opened(1)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	run := append(w.Batch(2, 30), w.Batch(1, 30)...)
	end := *w
	wantCode(f.t, f.copied(e.ID, append(append([]byte(nil), run...), new(Writer).Batch(1, 1)...)), core.CodeGap)
	wantCode(f.t, f.copied(e.ID, run[:len(run)-1]), core.CodeBadRecord)
	wantCode(f.t, f.copied(e.ID, nil), core.CodeBadArgument)
	if s := f.state(e.ID); s.Last != 3 {
		f.t.Fatalf("a refused run left %d records, want 3", s.Last)
	}
	wantCode(f.t, f.Seal(e.ID, end.Last, end.Checksum, 0), core.CodeIncomplete)
	beyond := append(append([]byte(nil), run...), w.Batch(1, 1)...)
	wantCode(f.t, f.copied(e.ID, beyond), core.CodeConflict)
	last, err := f.Copy(e.ID, run)
	must(f.t, err)
	if last != end.Last {
		f.t.Fatalf("copied up to %d, want %d", last, end.Last)
	}
	f.reopen()
	ReadAll(f.t, f, e.ID, end.Last, noLimit)
	if s := f.state(e.ID); s.Checksum != end.Checksum || s.Last != end.Last || !s.Sealed {
		f.t.Fatalf("after the copy: %+v, want %d, sealed", s, end.Last)
	}
	must(f.t, f.Seal(e.ID, end.Last, end.Checksum, 0))
}

// Remove removes an extent as controllers do: it is fenced, and told its end with the version that decided the removal.
func Remove(l extentlog.Log, e core.Extent, version uint64) error {
	s, err := l.Fence(e, version)
	if err != nil {
		return err
	}
	if err := l.Seal(e.ID, s.Last, s.Checksum, version); err != nil && core.CodeOf(err) != core.CodeConflict && core.CodeOf(err) != core.CodeIncomplete {
		return err
	}
	return l.Remove(e.ID, version)
}

// removalNeedsTheSealRow: nothing but the version that a seal told, with the end, removes an extent.
func removalNeedsTheSealRow(f *fixture) {
	e, w := f.opened(2)
	const large = 1 << 60
	refused := func(state string, version uint64) {
		f.t.Helper()
		before := f.state(e.ID)
		wantCode(f.t, f.Remove(e.ID, version), core.CodeConflict)
		if after := f.state(e.ID); after.Last != before.Last || after.Version != before.Version {
			f.t.Fatalf("%s: a refused removal changed %+v to %+v", state, before, after)
		}
		ReadAll(f.t, f, e.ID, w.Last, noLimit)
	}
	for _, version := range []uint64{0, 1, large} {
		refused("open", version)
	}
	_, err := f.Fence(e, large)
	must(f.t, err)
	for _, version := range []uint64{0, 1, large} {
		refused("fenced", version)
	}
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 3))
	for range 2 {
		for _, version := range []uint64{0, 2, 4, large} {
			refused("sealed", version)
		}
		f.reopen()
	}
	wantCode(f.t, f.Seal(e.ID, w.Last+1, w.Checksum, 4), core.CodeConflict) // another end: the version is told all the same
	refused("told another version", 3)
	must(f.t, f.Remove(e.ID, 4))
	removalOfTheUnknown(f, large)
}

// removalOfTheUnknown: a version that nobody told keeps no copy away from a store that does not have the extent, or had
// it before.
func removalOfTheUnknown(f *fixture, large uint64) {
	unheard, gone := Extent(), Extent()
	must(f.t, Remove(f, gone, 3))
	must(f.t, f.Remove(gone.ID, 3))
	for _, e := range []core.Extent{unheard, gone} {
		wantCode(f.t, f.Remove(e.ID, large), core.CodeConflict)
		f.reopen()
		_, err := f.Fence(e, 4)
		must(f.t, err)
		must(f.t, f.Seal(e.ID, 0, 0, 4))
		must(f.t, f.Remove(e.ID, 4))
	}
}
