package extentlogtest

import (
	"bytes"
	"errors"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

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
	_, err := f.Fence(e, 0)
	must(f.t, err)
	expect("fence")
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0))
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
	e, w := f.opened(2)
	other, ow := f.opened(2)
	for range 8 { // large enough to be cut out
		_, err := Append(f, e.ID, w.Batch(1, 300<<10), 0)
		must(f.t, err)
	}
	must(f.t, Remove(f, e, 1))
	_, err := f.State(e.ID)
	wantCode(f.t, err, core.CodeNotFound)
	_, err = f.Read(e.ID, 1, 1, 1)
	wantCode(f.t, err, core.CodeNotFound)
	again, err := f.Fence(e, 2)
	must(f.t, err)
	if again.Last != 0 || again.Bytes != 0 || again.Opened {
		f.t.Fatalf("made again: %+v, want an empty extent", again)
	}
	must(f.t, f.copied(e.ID, new(Writer).Batch(3, 100)))
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
	s, err := f.Fence(e, 0)
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
