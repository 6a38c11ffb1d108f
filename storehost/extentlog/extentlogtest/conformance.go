package extentlogtest

import (
	"bytes"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

const noLimit = math.MaxInt32

// fixture is an open log and what is needed to open it again.
type fixture struct {
	extentlog.Log
	t    *testing.T
	fs   vfs.FS
	open OpenFunc
}

func newFixture(t *testing.T, open OpenFunc) *fixture {
	f := &fixture{t: t, fs: vfs.NewMem(), open: open}
	f.start()
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

func (f *fixture) start() {
	f.t.Helper()
	l, err := f.open(f.fs)
	must(f.t, err)
	f.Log = l
}

func (f *fixture) reopen() {
	f.t.Helper()
	must(f.t, f.Close())
	f.start()
}

// opened opens an extent and appends n batches of 3 records.
func (f *fixture) opened(n int) (core.Extent, *Writer) {
	f.t.Helper()
	e, w := Extent(), new(Writer)
	must(f.t, f.Open(e))
	f.append(e.ID, w, n)
	return e, w
}

func (f *fixture) append(id core.ExtentID, w *Writer, n int) {
	f.t.Helper()
	for range n {
		b := w.Batch(3, 100)
		durable, err := Append(f, id, b, 0)
		must(f.t, err)
		if durable != w.Last {
			f.t.Fatalf("append answered %d, want %d", durable, w.Last)
		}
	}
}

func (f *fixture) copied(id core.ExtentID, batches []byte) error {
	_, err := f.Copy(id, batches)
	return err
}

func (f *fixture) state(id core.ExtentID) extentlog.State {
	f.t.Helper()
	s, err := f.State(id)
	must(f.t, err)
	return s
}

// Run runs the conformance suite.
func Run(t *testing.T, open OpenFunc) {
	for name, test := range map[string]func(*fixture){
		"OpenOnce": openOnce, "AppendThenRead": appendThenRead, "AppendRefusals": appendRefusals, "AnswersInOrder": answersInOrder,
		"Fence": fence, "FenceUnknown": fenceUnknown, "FenceCountsAccepted": fenceCountsAccepted, "SealTruncates": sealTruncates,
		"SealRefusals": sealRefusals, "SealShort": sealShort, "Copy": copyBatches, "ReadBounds": readBounds, "Seek": seek, "List": list,
		"Follow": follow, "FollowedRead": followedRead, "Remove": remove, "RestartedExtentTakesNoMore": restarted, "Closed": closed,
		"Identity": identity, "Versions": versions, "RemovedStaysAway": removedStaysAway, "Inventory": inventory,
		"InventoryPages": inventoryPages, "InventoryAfterRestart": inventoryAfterRestart, "CopyRuns": copyRuns,
		"DueInOrder": dueInOrder, "DueBounds": dueBounds, "DueAfterSeal": dueAfterSeal, "DueOfCopies": dueOfCopies, "Verify": verify, "RemovalNeedsTheSealRow": removalNeedsTheSealRow, "VerifyTimers": verifyTimers,
	} {
		t.Run(name, func(t *testing.T) { test(newFixture(t, open)) })
	}
}

func openOnce(f *fixture) {
	e := Extent()
	must(f.t, f.Open(e))
	s := f.state(e.ID)
	if want := (extentlog.State{Extent: e, Header: f.Identity(), Opened: true}); !cmp.Equal(s, want) {
		f.t.Fatal(cmp.Diff(want, s))
	}
	wantCode(f.t, f.Open(e), core.CodeExists)
	f.reopen()
	wantCode(f.t, f.Open(e), core.CodeExists)
}

func appendThenRead(f *fixture) {
	e, w := f.opened(0)
	var all []byte
	for i := range 20 {
		b := w.Batch(1+i%4, 50*i)
		all = append(all, b...)
		_, err := Append(f, e.ID, b, w.Last/2)
		must(f.t, err)
	}
	for range 2 {
		s := f.state(e.ID)
		if s.Last != w.Last || s.Checksum != w.Checksum || s.Bytes != uint64(len(all)) || s.Committed != w.Last/2 {
			f.t.Fatalf("state %+v, want last %d, checksum %08x, bytes %d, committed %d", s, w.Last, w.Checksum, len(all), w.Last/2)
		}
		for _, limit := range []int{1, 700, noLimit} {
			if got := ReadAll(f.t, f, e.ID, s.Last, limit); !bytes.Equal(got, all) {
				f.t.Fatalf("limit %d: read %d bytes, appended %d, or they differ", limit, len(got), len(all))
			}
		}
		f.reopen()
	}
}

func appendRefusals(f *fixture) {
	_, err := Append(f, Extent().ID, new(Writer).Batch(1, 1), 0)
	wantCode(f.t, err, core.CodeNotFound)
	e, w := f.opened(2)
	ahead := *w
	ahead.Batch(1, 10)
	_, err = Append(f, e.ID, ahead.Batch(1, 10), 0)
	wantCode(f.t, err, core.CodeGap)
	_, err = Append(f, e.ID, new(Writer).Batch(3, 100), 0)
	wantCode(f.t, err, core.CodeGap)
	other := Writer{Last: w.Last, Checksum: w.Checksum + 1}
	_, err = Append(f, e.ID, other.Batch(1, 10), 0)
	wantCode(f.t, err, core.CodeCorrupt)
	_, err = Append(f, e.ID, []byte("garbage that is longer than a batch header"), 0)
	wantCode(f.t, err, core.CodeBadRecord)
	f.append(e.ID, w, 1)
}

func answersInOrder(f *fixture) {
	e, w := f.opened(0)
	const n = 200
	answers := make(chan core.Seq, n)
	for range n {
		f.Append(e.ID, w.Batch(1, 1000), 0, func(durable core.Seq, err error) {
			if err != nil {
				durable = 0
			}
			answers <- durable
		})
	}
	for i := range n {
		if got := <-answers; got != core.Seq(i+1) {
			f.t.Fatalf("answer %d is seq %d", i+1, got)
		}
	}
}

func fence(f *fixture) {
	e, w := f.opened(3)
	f.Commit(e.ID, 5)
	for range 2 {
		s, err := f.Fence(e, 0)
		must(f.t, err)
		if !s.Fenced || s.Last != w.Last || s.Checksum != w.Checksum || s.Committed != 5 || s.Sealed {
			f.t.Fatalf("fence answered %+v, want last %d, checksum %08x, committed 5", s, w.Last, w.Checksum)
		}
	}
	next := *w
	_, err := Append(f, e.ID, next.Batch(1, 1), 0)
	wantCode(f.t, err, core.CodeFenced)
	f.reopen()
	_, err = Append(f, e.ID, next.Batch(1, 1), 0)
	wantCode(f.t, err, core.CodeFenced)
	wantCode(f.t, f.Open(e), core.CodeFenced)
	if s := f.state(e.ID); s.Committed != 5 || s.Last != w.Last {
		f.t.Fatalf("after a restart: %+v, want committed 5, last %d", s, w.Last)
	}
}

func fenceUnknown(f *fixture) {
	e := Extent()
	s, err := f.Fence(e, 0)
	must(f.t, err)
	if s.Opened || !s.Fenced || s.Last != 0 || !s.Header.Run.IsZero() {
		f.t.Fatalf("fence of an unknown extent answered %+v", s)
	}
	wantCode(f.t, f.Open(e), core.CodeFenced)
	f.reopen()
	wantCode(f.t, f.Open(e), core.CodeFenced)
	if got := f.state(e.ID).Extent; !got.Equal(e) {
		f.t.Fatal(cmp.Diff(e, got))
	}
}

// fenceCountsAccepted: the fence answers the last append that is acknowledged; all behind it are refused, none is
// forgotten.
func fenceCountsAccepted(f *fixture) {
	e, w := f.opened(0)
	var answers sync.WaitGroup
	var acked, fenced atomic.Uint64
	const n = 100
	for range n {
		answers.Add(1)
		f.Append(e.ID, w.Batch(1, 2000), 0, func(durable core.Seq, err error) {
			defer answers.Done()
			switch {
			case err == nil:
				acked.Store(uint64(durable))
			case core.CodeOf(err) == core.CodeFenced:
				fenced.Add(1)
			default:
				f.t.Error(err)
			}
		})
	}
	s, err := f.Fence(e, 0)
	must(f.t, err)
	answers.Wait()
	_, err = Append(f, e.ID, w.Batch(1, 1), 0)
	wantCode(f.t, err, core.CodeFenced)
	if s.Last != core.Seq(acked.Load()) || acked.Load()+fenced.Load() != n {
		f.t.Fatalf("fence counted %d, acknowledged %d, refused %d, want %d in all", s.Last, acked.Load(), fenced.Load(), n)
	}
}

func sealTruncates(f *fixture) {
	e, w := f.opened(4)
	end := *w
	f.append(e.ID, w, 3)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	must(f.t, f.Seal(e.ID, end.Last, end.Checksum, 0))
	must(f.t, f.Seal(e.ID, end.Last, end.Checksum, 0))
	for range 2 {
		s := f.state(e.ID)
		if !s.Sealed || s.L != end.Last || s.Last != end.Last || s.Checksum != end.Checksum {
			f.t.Fatalf("sealed state %+v, want L %d, checksum %08x", s, end.Last, end.Checksum)
		}
		if got := ReadAll(f.t, f, e.ID, w.Last, noLimit); uint64(len(got)) != s.Bytes {
			f.t.Fatalf("read %d bytes, state says %d", len(got), s.Bytes)
		}
		f.reopen()
	}
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0), core.CodeConflict)
}

func sealRefusals(f *fixture) {
	wantCode(f.t, f.Seal(Extent().ID, 0, 0, 0), core.CodeNotFound)
	e, w := f.opened(3)
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0), core.CodeConflict)
	f.Commit(e.ID, 6)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	wantCode(f.t, f.Seal(e.ID, 3, 0, 0), core.CodeConflict)
	wantCode(f.t, f.Seal(e.ID, 8, 0, 0), core.CodeConflict)
	if s := f.state(e.ID); s.Sealed || s.Last != w.Last {
		f.t.Fatalf("a refused seal left %+v", s)
	}
	wantCode(f.t, f.Seal(e.ID, 6, w.Checksum, 0), core.CodeCorrupt)
	if s := f.state(e.ID); s.Sealed || s.Last != w.Last || !s.Damaged {
		f.t.Fatalf("a seal with another checksum left %+v, want all 9 and damaged", s)
	}
	_, err = f.Read(e.ID, 1, w.Last, noLimit)
	wantCode(f.t, err, core.CodeCorrupt)
}

func sealShort(f *fixture) {
	e, w := f.opened(2)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	b := w.Batch(3, 10)
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0), core.CodeIncomplete)
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0), core.CodeIncomplete)
	must(f.t, f.copied(e.ID, b))
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0))
	wantCode(f.t, f.copied(e.ID, w.Batch(1, 1)), core.CodeConflict)
	empty := Extent()
	_, err = f.Fence(empty, 0)
	must(f.t, err)
	must(f.t, f.Seal(empty.ID, 0, 0, 0))
}

func copyBatches(f *fixture) {
	e, w := f.opened(1)
	b1, b2 := w.Batch(2, 30), w.Batch(2, 30)
	wantCode(f.t, f.copied(e.ID, b1), core.CodeConflict)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	wantCode(f.t, f.copied(e.ID, b2), core.CodeGap)
	must(f.t, f.copied(e.ID, b1))
	wantCode(f.t, f.copied(e.ID, b1), core.CodeGap)
	diverged := Writer{Last: 5, Checksum: 1}
	wantCode(f.t, f.copied(e.ID, diverged.Batch(1, 1)), core.CodeCorrupt)
	must(f.t, f.copied(e.ID, b2))
	f.reopen()
	if s := f.state(e.ID); s.Last != w.Last || s.Checksum != w.Checksum {
		f.t.Fatalf("after copies: %+v, want last %d", s, w.Last)
	}
	ReadAll(f.t, f, e.ID, w.Last, noLimit)
	wantCode(f.t, f.copied(Extent().ID, b1), core.CodeNotFound)
}
