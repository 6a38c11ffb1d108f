package storehost

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
)

func TestRead_NeverBeyondCommitted(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	for range 4 {
		a.append(w.Batch(2, 10), 0)
	}
	a.awaitAck(8)
	r := l.openRead(e, 1, 1<<20)
	a.sendPosition(wire.TypeCommitted, 4)
	r.readTo(1, 4)
	a.sendPosition(wire.TypeCommitted, 5) // inside a batch
	r.expect(wire.TypeReadCommitted, 5)
	a.sendPosition(wire.TypeCommitted, 8)
	r.readTo(5, 8)
}

func TestRead_Credit(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	size := 0
	for range 10 {
		b := w.Batch(1, 1000)
		size = len(b)
		a.append(b, 0)
	}
	a.awaitAck(10)
	a.sendPosition(wire.TypeCommitted, 10)
	r := l.openRead(e, 1, 0)
	r.expect(wire.TypeReadCommitted, 10)
	r.sendPosition(wire.TypeReadCredit, 1)
	r.readTo(1, 1) // the one that overdraws
	r.sendPosition(wire.TypeReadCredit, uint64(size-1))
	r.sendPosition(wire.TypeReadCredit, uint64(3*size))
	r.readTo(2, 4)
	l.openRead(e, 1, 1<<20).readTo(1, 10) // by the same pusher, after anything it had for r
	if n := len(r.frames); n > 0 {
		t.Fatalf("%d frames came without credit", n)
	}
}

// TestRead_RefusalNamesTheExtent logs which extent a reader did not get. A store lacks an extent in a
// normal race with its removal, so the line is for developers only.
func TestRead_RefusalNamesTheExtent(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		var out bytes.Buffer // slog writes under a lock, and it is read after the host has stopped
		s := &testStore{t: t, self: "s1", dir: filepath.Join(t.TempDir(), "store"), log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))}
		s.start()
		e := extent("s1")
		s.dial().openRead(e, 1, 1<<20).expectRefused(core.CodeNotFound)
		s.stop()
		if text := out.String(); strings.Contains(text, "read stream refused") != want || want && !strings.Contains(text, "extent="+e.ID.String()) {
			t.Errorf("at %s the log has: %s", level, text)
		}
	}
}

func TestRead_Sealed(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	a.append(w.Batch(3, 10), 0)
	a.awaitAck(3)
	end := *w
	a.append(w.Batch(3, 10), 0)
	a.awaitAck(6)
	r := l.openRead(e, 1, 1<<20)
	s.fence(e, core.DiskID{})
	must(t, s.seal(e, end.Last, end.Checksum))
	r.readTo(1, 3)
	r.expect(wire.TypeReadSealed, 3)
	late := l.openRead(e, 4, 0)
	late.expect(wire.TypeReadSealed, 3)
	beyond := l.openRead(e, 99, 0)
	beyond.expect(wire.TypeReadSealed, 3)
}

func TestRead_ShortReplicaNeverClaimsTheEnd(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e, w := extent("s1", "s2"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	a.append(w.Batch(3, 10), 0)
	a.awaitAck(3)
	s.fence(e, core.DiskID{})
	w.Batch(2, 10)
	wantCode(t, s.seal(e, w.Last, w.Checksum), core.CodeIncomplete)
	r := l.openRead(e, 1, 1<<20)
	r.readTo(1, 3)
	r.expectRefused(core.CodeIncomplete)
}

func TestRead_UnknownAndRemoved(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	l.openRead(extent("s1"), 1, 1).expectRefused(core.CodeNotFound)
	e := extent("s1")
	a, w := l.openAppend(e), new(extentlogtest.Writer)
	a.append(w.Batch(1, 10), 0)
	a.awaitAck(1)
	a.sendPosition(wire.TypeCommitted, 1)
	r := l.openRead(e, 1, 0)
	r.expect(wire.TypeReadCommitted, 1)
	for _, version := range []uint64{0, 1, 1 << 60} { // nobody decided that
		wantCode(t, s.remove(e, version, nil), core.CodeConflict)
	}
	must(t, s.sealAt(e, w, 7, nil))
	wantCode(t, s.remove(e, 1<<60, nil), core.CodeConflict)
	must(t, s.remove(e, 7, nil))
	r.expectRefused(core.CodeNotFound)
}

func TestRead_LargeBacklogAndTail(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	for range 40 {
		a.append(w.Batch(4, 64<<10), 0)
	}
	a.awaitAck(w.Last)
	a.sendPosition(wire.TypeCommitted, uint64(w.Last))
	other := s.dial()
	r := other.openRead(e, 1, 1<<30)
	r.readTo(1, w.Last)
	from := w.Last + 1
	for range 20 {
		a.append(w.Batch(1, 1000), 0)
	}
	a.awaitAck(w.Last)
	a.sendPosition(wire.TypeCommitted, uint64(w.Last))
	r.readTo(from, w.Last)
}

// TestRead_FencedAndNotSealed: what is not committed is for copies alone until the end is persisted here.
func TestRead_FencedAndNotSealed(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e, w := extent("s1", "s2"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	for range 3 {
		a.append(w.Batch(2, 10), 0)
	}
	a.awaitAck(6)
	a.sendPosition(wire.TypeCommitted, 2)
	read := func(from, upTo core.Seq, forCopy bool) (last core.Seq, err error) {
		t.Helper()
		resp, err := s.rpc.ReadRange(t.Context(), connect.NewRequest(&pb.ReadRangeRequest{Extent: e.ID.ID[:], From: uint64(from), UpTo: uint64(upTo), Copy: forCopy}))
		if err != nil {
			return 0, convert.FromRPC(err)
		}
		for rest := resp.Msg.Batches; len(rest) > 0; {
			var b wire.Batch
			b, rest, err = wire.NextBatch(rest)
			must(t, err)
			last = b.Last()
		}
		return last, nil
	}
	expect := func(when string, want core.Seq) {
		t.Helper()
		if got, err := read(1, 99, false); err != nil || got != want {
			t.Fatalf("%s: read up to %d, %v, want %d", when, got, err, want)
		}
		if got, err := read(want+1, 99, false); err != nil || got != 0 {
			t.Fatalf("%s: read %d beyond it, %v", when, got, err)
		}
	}
	r := l.openRead(e, 1, 1<<20)
	r.readTo(1, 2)
	expect("open", 2)
	_, err := read(1, 2, true)
	wantCode(t, err, core.CodeConflict) // it may still grow, or lose what it has
	s.fence(e, core.DiskID{})
	expect("fenced", 2)
	if got, err := read(1, 99, true); err != nil || got != 6 {
		t.Fatalf("a copy was given all up to %d, %v, want 6", got, err)
	}
	second := l.openRead(e, 1, 1<<20)
	second.readTo(1, 2)
	second.sendPosition(wire.TypeReadCredit, 1<<20)
	must(t, s.seal(extent("s1"), 0, 0)) // another one: goes through the same log
	if n := len(second.frames) + len(r.frames); n > 0 {
		t.Fatalf("%d frames came beyond what is committed", n)
	}
	must(t, s.seal(e, w.Last, w.Checksum))
	expect("sealed", 6)
	for _, reader := range []*stream{r, second} {
		reader.readTo(3, 6)
		reader.expect(wire.TypeReadSealed, 6)
	}
}

// TestRead_ShortReplica: at each entry point a replica that lacks something before its end says so.
func TestRead_ShortReplica(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1", "s2"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	a.append(w.Batch(3, 10), 0)
	a.awaitAck(3)
	s.fence(e, core.DiskID{})
	w.Batch(2, 10)
	wantCode(t, s.seal(e, w.Last, w.Checksum), core.CodeIncomplete)
	for _, forCopy := range []bool{false, true} {
		_, err := s.rpc.ReadRange(t.Context(), connect.NewRequest(&pb.ReadRangeRequest{Extent: e.ID.ID[:], From: 4, UpTo: 5, Copy: forCopy}))
		wantCode(t, convert.FromRPC(err), core.CodeIncomplete)
	}
	s.dial().openRead(e, 4, 1<<20).expectRefused(core.CodeIncomplete)
}
