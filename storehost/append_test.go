package storehost

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

func TestAppend_Pipelined(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	for range 100 {
		a.append(w.Batch(10, 100), 0)
	}
	a.awaitAck(w.Last)
	if got := s.fence(e, core.DiskID{}); got.Last != w.Last || got.Checksum != w.Checksum || got.Health != core.HealthOK {
		t.Fatalf("fence answered %+v, want %d, ok", got, w.Last)
	}
	a.append(w.Batch(1, 1), 0)
	a.expectRefused(core.CodeFenced)
}

func TestAppend_OneWriter(t *testing.T) {
	s := startStore(t, "s1")
	e := extent("s1")
	l := s.dial()
	l.openAppend(e)
	second := l.stream()
	second.sendProto(wire.TypeOpenAppend, &pb.OpenAppend{Extent: convert.ExtentToProto(e)})
	second.expectRefused(core.CodeExists)
	l.drop()
	after := s.dial().stream()
	after.sendProto(wire.TypeOpenAppend, &pb.OpenAppend{Extent: convert.ExtentToProto(e)})
	after.expectRefused(core.CodeExists)
}

func TestAppend_OpenRefused(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	fenced := extent("s1")
	s.fence(fenced, core.DiskID{})
	wrongDisk := convert.IdentityToProto(core.StoreIdentity{Store: "s1", Disk: core.DiskID{ID: extent().ID.ID}})
	for name, c := range map[string]struct {
		open *pb.OpenAppend
		want core.Code
	}{
		"fenced":      {&pb.OpenAppend{Extent: convert.ExtentToProto(fenced)}, core.CodeFenced},
		"not here":    {&pb.OpenAppend{Extent: convert.ExtentToProto(extent("s2", "s3"))}, core.CodeConflict},
		"other store": {&pb.OpenAppend{Extent: convert.ExtentToProto(extent("s1")), Expected: &pb.StoreIdentity{Store: "s2"}}, core.CodeConflict},
		"other disk":  {&pb.OpenAppend{Extent: convert.ExtentToProto(extent("s1")), Expected: wrongDisk}, core.CodeConflict},
		"no extent":   {&pb.OpenAppend{}, core.CodeBadArgument},
	} {
		t.Log(name)
		a := l.stream()
		a.sendProto(wire.TypeOpenAppend, c.open)
		a.expectRefused(c.want)
	}
	garbage := l.stream()
	garbage.send(wire.TypeOpenAppend, []byte{0xff, 0xff, 0xff})
	garbage.expectRefused(core.CodeBadFrame)
	l.openAppend(extent("s1")) // the connection lives on
}

// TestAppend_OpenRefusedByTheHost: openings that the host has no turn for are given back to the connection.
func TestAppend_OpenRefusedByTheHost(t *testing.T) {
	s := startStore(t, "s1")
	cfg := DefaultConfig()
	s.host.peers = ws.NewAdmission(cfg.Links, func(func(context.Context)) bool { return false })
	l := s.dial()
	for range maxOpening + 1 {
		a := l.stream()
		a.sendProto(wire.TypeOpenAppend, &pb.OpenAppend{Extent: convert.ExtentToProto(extent("s1"))})
		a.expectRefused(core.CodeDraining)
	}
}

func TestAppend_DamagedNeverStored(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	damage := map[string]func([]byte) []byte{
		"payload": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"header":  func(b []byte) []byte { b[9] ^= 1; return b },
		"short":   func(b []byte) []byte { return b[:len(b)-3] },
		"tiny":    func(b []byte) []byte { return b[:5] },
		"more":    func(b []byte) []byte { return append(b, b[wire.BatchHeaderLen:]...) },
	}
	for name, change := range damage {
		e, w := extent("s1"), new(extentlogtest.Writer)
		a := l.openAppend(e)
		a.append(w.Batch(1, 50), 0)
		a.awaitAck(1)
		a.append(change(w.Batch(1, 50)), 0)
		f := a.receive()
		if code := core.CodeOf(convert.FrameError(f.Body)); f.Type != wire.TypeRefused || code != core.CodeBadRecord && code != core.CodeBadFrame {
			t.Fatalf("%s: got frame %d %s, want refused as damaged", name, f.Type, describe(f))
		}
		if got := s.fence(e, core.DiskID{}); got.Last != 1 {
			t.Fatalf("%s: %d records are stored, want 1", name, got.Last)
		}
	}
}

func TestAppend_OutOfTurn(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	early := l.stream()
	early.append(new(extentlogtest.Writer).Batch(1, 1), 0) // no stream yet: ignored
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	w.Batch(1, 1)
	a.append(w.Batch(1, 1), 0)
	a.expectRefused(core.CodeGap)
	wrong := l.openAppend(extent("s1"))
	wrong.sendPosition(wire.TypeReadCredit, 1)
	wrong.expectRefused(core.CodeBadFrame)
}

func TestAppend_ManyExtentsOnOneLink(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			e, w := extent("s1"), new(extentlogtest.Writer)
			a := l.openAppend(e)
			for range 5 {
				a.append(w.Batch(2, 100), w.Last)
			}
			a.awaitAck(w.Last)
			a.sendPosition(wire.TypeCommitted, uint64(w.Last))
			r := l.openRead(e, 1, 1<<20)
			r.readTo(1, w.Last)
			a.send(wire.TypeCloseAppend, nil)
			r.send(wire.TypeCloseRead, nil)
		})
	}
	wg.Wait()
}

func TestLink_GarbageEndsIt(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	must(t, l.mux.Conn.Send(t.Context(), []byte("this is no frame at all, but long enough")))
	select {
	case err := <-l.done:
		l.done <- err
	case <-t.Context().Done():
	}
	s.dial().openAppend(extent("s1"))
}

func TestAppend_BadFramesDoNotFloodTheLog(t *testing.T) {
	var out bytes.Buffer // slog writes under a lock, and it is read after the host has stopped
	s := &testStore{t: t, self: "s1", dir: filepath.Join(t.TempDir(), "store"), log: slog.New(slog.NewTextHandler(&out, nil))}
	s.start()
	t.Cleanup(func() { s.stop() })
	l := s.dial()
	for range 2000 {
		garbage := l.stream()
		garbage.send(wire.TypeOpenAppend, []byte{0xff, 0xff, 0xff})
		garbage.expectRefused(core.CodeBadFrame)
	}
	s.stop()
	if lines := strings.Count(out.String(), "append stream refused"); lines == 0 || lines > 20 {
		t.Errorf("2000 bad frames made %d log lines, want some, and at most 20", lines)
	}
}
