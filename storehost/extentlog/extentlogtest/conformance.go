package extentlogtest

import (
	"bytes"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

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
		"Identity": identity,
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
		s, err := f.Fence(e)
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
	s, err := f.Fence(e)
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

// fenceCountsAccepted: no append is acknowledged above what the fence answered.
func fenceCountsAccepted(f *fixture) {
	e, w := f.opened(0)
	var acked atomic.Uint64
	const n = 100
	for range n {
		f.Append(e.ID, w.Batch(1, 2000), 0, func(durable core.Seq, err error) {
			if err == nil {
				acked.Store(uint64(durable))
			}
		})
	}
	s, err := f.Fence(e)
	must(f.t, err)
	_, err = Append(f, e.ID, w.Batch(1, 1), 0)
	wantCode(f.t, err, core.CodeFenced)
	if s.Last != n || acked.Load() != n {
		f.t.Fatalf("fence counted %d, acknowledged %d, want %d", s.Last, acked.Load(), n)
	}
}

func sealTruncates(f *fixture) {
	e, w := f.opened(4)
	end := *w
	f.append(e.ID, w, 3)
	_, err := f.Fence(e)
	must(f.t, err)
	must(f.t, f.Seal(e.ID, end.Last, end.Checksum))
	must(f.t, f.Seal(e.ID, end.Last, end.Checksum))
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
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum), core.CodeConflict)
}

func sealRefusals(f *fixture) {
	wantCode(f.t, f.Seal(Extent().ID, 0, 0), core.CodeNotFound)
	e, w := f.opened(3)
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum), core.CodeConflict)
	f.Commit(e.ID, 6)
	_, err := f.Fence(e)
	must(f.t, err)
	wantCode(f.t, f.Seal(e.ID, 3, 0), core.CodeConflict)
	wantCode(f.t, f.Seal(e.ID, 8, 0), core.CodeConflict)
	if s := f.state(e.ID); s.Sealed || s.Last != w.Last {
		f.t.Fatalf("a refused seal left %+v", s)
	}
	wantCode(f.t, f.Seal(e.ID, 6, w.Checksum), core.CodeCorrupt)
	if s := f.state(e.ID); s.Sealed || s.Last != w.Last || !s.Damaged {
		f.t.Fatalf("a seal with another checksum left %+v, want all 9 and damaged", s)
	}
	_, err = f.Read(e.ID, 1, w.Last, noLimit)
	wantCode(f.t, err, core.CodeCorrupt)
}

func sealShort(f *fixture) {
	e, w := f.opened(2)
	_, err := f.Fence(e)
	must(f.t, err)
	b := w.Batch(3, 10)
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum), core.CodeIncomplete)
	wantCode(f.t, f.Seal(e.ID, w.Last, w.Checksum), core.CodeIncomplete)
	must(f.t, f.Copy(e.ID, b))
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum))
	wantCode(f.t, f.Copy(e.ID, w.Batch(1, 1)), core.CodeConflict)
	empty := Extent()
	_, err = f.Fence(empty)
	must(f.t, err)
	must(f.t, f.Seal(empty.ID, 0, 0))
}

func copyBatches(f *fixture) {
	e, w := f.opened(1)
	b1, b2 := w.Batch(2, 30), w.Batch(2, 30)
	wantCode(f.t, f.Copy(e.ID, b1), core.CodeConflict)
	_, err := f.Fence(e)
	must(f.t, err)
	wantCode(f.t, f.Copy(e.ID, b2), core.CodeGap)
	must(f.t, f.Copy(e.ID, b1))
	wantCode(f.t, f.Copy(e.ID, b1), core.CodeGap)
	diverged := Writer{Last: 5, Checksum: 1}
	wantCode(f.t, f.Copy(e.ID, diverged.Batch(1, 1)), core.CodeCorrupt)
	must(f.t, f.Copy(e.ID, b2))
	f.reopen()
	if s := f.state(e.ID); s.Last != w.Last || s.Checksum != w.Checksum {
		f.t.Fatalf("after copies: %+v, want last %d", s, w.Last)
	}
	ReadAll(f.t, f, e.ID, w.Last, noLimit)
	wantCode(f.t, f.Copy(Extent().ID, b1), core.CodeNotFound)
}

func readBounds(f *fixture) {
	e, _ := f.opened(4) // batches 1-3, 4-6, 7-9, 10-12
	for _, c := range []struct {
		from, upTo  core.Seq
		max         int
		first, last core.Seq // 0: nothing
	}{
		{1, 12, noLimit, 1, 12}, {2, 12, noLimit, 1, 12}, {3, 5, noLimit, 1, 3}, {4, 6, noLimit, 4, 6}, {5, 5, noLimit, 0, 0},
		{12, 99, noLimit, 10, 12}, {13, 99, noLimit, 0, 0}, {7, 12, 1, 7, 9}, {0, 3, noLimit, 1, 3}, {9, 4, noLimit, 0, 0},
	} {
		b, err := f.Read(e.ID, c.from, c.upTo, c.max)
		must(f.t, err)
		if first, last := span(f.t, b); first != c.first || last != c.last {
			f.t.Errorf("read %d…%d of at most %d bytes: got %d…%d, want %d…%d", c.from, c.upTo, c.max, first, last, c.first, c.last)
		}
	}
	_, err := f.Read(Extent().ID, 1, 1, 1)
	wantCode(f.t, err, core.CodeNotFound)
}

func seek(f *fixture) {
	e, _ := f.opened(4) // append times 1000, 2000, 3000, 4000
	for at, want := range map[int64]core.Seq{0: 1, 1000: 1, 1001: 4, 2000: 4, 3999: 10, 4000: 10, 4001: 13} {
		if got, err := f.Seek(e.ID, at); err != nil || got != want {
			f.t.Errorf("seek %d: got %d, %v; want %d", at, got, err, want)
		}
	}
	empty, _ := f.opened(0)
	if got, err := f.Seek(empty.ID, 5); err != nil || got != 1 {
		f.t.Errorf("seek in an empty extent: got %d, %v; want 1", got, err)
	}
}

func list(f *fixture) {
	want := []core.ExtentID{}
	for range 5 {
		e, _ := f.opened(1)
		want = append(want, e.ID)
	}
	var got []core.ExtentID
	must(f.t, f.List(func(s extentlog.State) bool { got = append(got, s.Extent.ID); return true }))
	less := func(a, b core.ExtentID) bool { return bytes.Compare(a.ID[:], b.ID[:]) < 0 }
	for i := 1; i < len(got); i++ {
		if !less(got[i-1], got[i]) {
			f.t.Fatalf("%s is listed before %s", got[i-1], got[i])
		}
	}
	if len(got) != len(want) {
		f.t.Fatalf("listed %d extents, want %d", len(got), len(want))
	}
	n := 0
	must(f.t, f.List(func(extentlog.State) bool { n++; return n < 2 }))
	if n != 2 {
		f.t.Fatalf("list went on after false: %d", n)
	}
}

func follow(f *fixture) {
	e, w := f.opened(0)
	woken := make(chan struct{}, 100)
	stop := f.Follow(e.ID, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	expect := func(what string) {
		f.t.Helper()
		select {
		case <-woken:
		case <-time.After(10 * time.Second):
			f.t.Fatalf("not woken after %s", what)
		}
		for len(woken) > 0 {
			<-woken
		}
	}
	f.append(e.ID, w, 1)
	expect("append")
	f.Commit(e.ID, 2)
	expect("commit")
	_, err := f.Fence(e)
	must(f.t, err)
	expect("fence")
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum))
	expect("seal")
	stop()
	f.Commit(e.ID, 3)
	if len(woken) > 0 {
		f.t.Fatal("woken after stop")
	}
}

// followedRead reads at the head, where engines may keep batches in memory.
func followedRead(f *fixture) {
	e, w := f.opened(2)
	stop := f.Follow(e.ID, func() {})
	f.append(e.ID, w, 100)
	ReadAll(f.t, f, e.ID, w.Last, 1000)
	for i := range 40 {
		_, err := Append(f, e.ID, w.Batch(1, 100<<(i%14)), 0)
		must(f.t, err)
		if b, err := f.Read(e.ID, w.Last, w.Last, 1); err != nil || len(b) == 0 {
			f.t.Fatalf("read at the head: %d bytes, %v", len(b), err)
		}
	}
	ReadAll(f.t, f, e.ID, w.Last, noLimit)
	stop()
	f.append(e.ID, w, 5)
	defer f.Follow(e.ID, func() {})()
	f.append(e.ID, w, 5)
	ReadAll(f.t, f, e.ID, w.Last, 500)
}

func remove(f *fixture) {
	wantCode(f.t, f.Remove(Extent().ID), core.CodeNotFound)
	e, w := f.opened(2)
	other, ow := f.opened(2)
	for range 8 { // large enough to be cut out
		_, err := Append(f, e.ID, w.Batch(1, 300<<10), 0)
		must(f.t, err)
	}
	must(f.t, f.Remove(e.ID))
	_, err := f.State(e.ID)
	wantCode(f.t, err, core.CodeNotFound)
	_, err = f.Read(e.ID, 1, 1, 1)
	wantCode(f.t, err, core.CodeNotFound)
	must(f.t, f.Open(e))
	if s := f.state(e.ID); s.Last != 0 || s.Bytes != 0 {
		f.t.Fatalf("made again: %+v, want an empty extent", s)
	}
	f.append(e.ID, new(Writer), 1)
	f.reopen()
	ReadAll(f.t, f, other.ID, ow.Last, noLimit)
	ReadAll(f.t, f, e.ID, 3, noLimit)
}

func restarted(f *fixture) {
	e, w := f.opened(2)
	before := f.Identity()
	f.reopen()
	if s := f.state(e.ID); s.Header != before || s.Header.Run == f.Identity().Run {
		f.t.Fatalf("header %+v, want %+v of the earlier run", s.Header, before)
	}
	next := *w
	_, err := Append(f, e.ID, next.Batch(1, 1), 0)
	wantCode(f.t, err, core.CodeFenced)
	ReadAll(f.t, f, e.ID, w.Last, noLimit)
	s, err := f.Fence(e)
	must(f.t, err)
	if s.Last != w.Last {
		f.t.Fatalf("fence counted %d, want %d", s.Last, w.Last)
	}
}

func closed(f *fixture) {
	e, w := f.opened(1)
	const n = 50
	answers := make(chan error, n)
	for range n {
		f.Append(e.ID, w.Batch(1, 100), 0, func(_ core.Seq, err error) { answers <- err })
	}
	must(f.t, f.Close())
	for range n {
		must(f.t, <-answers)
	}
	_, err := Append(f, e.ID, w.Batch(1, 100), 0)
	wantCode(f.t, err, core.CodeUnavailable)
	_, err = f.Read(e.ID, 1, 3, 10)
	wantCode(f.t, err, core.CodeUnavailable)
	wantCode(f.t, f.Open(Extent()), core.CodeUnavailable)
	must(f.t, f.Close())
	f.start()
	if s := f.state(e.ID); s.Last != 3+n {
		f.t.Fatalf("after close: last %d, want %d", s.Last, 3+n)
	}
}

func identity(f *fixture) {
	a := f.Identity()
	f.reopen()
	b := f.Identity()
	if a.Store != b.Store || a.Disk != b.Disk || a.Run == b.Run || a.Disk.IsZero() {
		f.t.Fatalf("identity %+v became %+v: want the same store and disk in a new run", a, b)
	}
	if _, err := f.open(f.fs); !errors.Is(err, &core.Error{Code: core.CodeLocked}) {
		f.t.Fatalf("second open: %v, want %q", err, core.CodeLocked)
	}
}
