package storehost

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
)

// breaking is a store on a disk that can be made to fail.
func breaking(t *testing.T) (s *testStore, disk *memdisk.Disk) {
	t.Helper()
	disk = memdisk.New()
	s = &testStore{t: t, self: "s1", dir: "unused", open: func(_ string, o extentlog.Options) (extentlog.Log, error) { return disk.Open(o) }}
	s.start()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ran)
		s.stop()
	})
	return s, disk
}

// await waits for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// TestReopen_AfterOneError: the store works again by itself, as a new run, and has all that it acknowledged.
func TestReopen_AfterOneError(t *testing.T) {
	s, disk := breaking(t)
	run := s.host.current().Identity().Run
	e, w := extent("s1"), new(extentlogtest.Writer)
	l := s.dial()
	a := l.openAppend(e)
	for range 5 {
		a.append(w.Batch(2, 100), 0)
	}
	a.awaitAck(w.Last)
	acked := w.Last
	disk.FailOnce(".seg")
	a.append(w.Batch(2, 100), 0)
	await(t, "a new run", func() bool { log := s.host.current(); return log != nil && log.Identity().Run != run })
	if err := s.host.Ready(); err != nil {
		t.Errorf("afterwards the store is not ready: %v", err)
	}
	select {
	case err := <-l.done:
		l.done <- err
	case <-time.After(patience):
		t.Fatal("the connection to the failed log lives on")
	}
	got := s.fence(e, core.DiskID{})
	if got.Health != core.HealthWeak || got.Last < acked {
		t.Errorf("fence of what was open: %+v, want weak, and at least %d, which were acknowledged", got, acked)
	}
	again, aw := extent("s1"), new(extentlogtest.Writer)
	b := s.dial().openAppend(again)
	b.append(aw.Batch(3, 100), 0)
	b.awaitAck(aw.Last)
	if got := s.fence(again, core.DiskID{}); got.Health != core.HealthOK || got.Last != aw.Last {
		t.Errorf("fence of a new one: %+v, want ok and %d", got, aw.Last)
	}
}

// TestReopen_WaitsForTheDisk: while it takes no write the store says so and serves what it has.
func TestReopen_WaitsForTheDisk(t *testing.T) {
	s, disk := breaking(t)
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	a.append(w.Batch(2, 100), 0)
	a.awaitAck(w.Last)
	disk.FailAll(true)
	a.append(w.Batch(2, 100), w.Last)
	a.expectRefused(core.CodeUnavailable)
	await(t, "the store says that it is not ready", func() bool { return s.host.Ready() != nil })
	if v := s.host.vitals(); !v.Refuses {
		t.Errorf("vitals: %+v, want refuses", v)
	}
	if !s.describe().RefusesAppends { // the state of the list of hosts
		t.Error("the store does not describe itself as one that refuses")
	}
	tries := time.After(4 * reopenFirst)
	for waiting := true; waiting; {
		select {
		case <-tries:
			waiting = false
		default:
			if b, err := s.host.current().Read(e.ID, 1, 2, 1<<20); err != nil || len(b) == 0 {
				t.Fatalf("read meanwhile: %d bytes, %v", len(b), err)
			}
		}
	}
	disk.FailAll(false)
	await(t, "the store is ready again", func() bool { return s.host.Ready() == nil })
	if got := s.fence(e, core.DiskID{}); got.Last < 2 {
		t.Errorf("fence: %+v, want what was acknowledged", got)
	}
	_, err := s.host.current().Fence(extent("s1"), 0)
	must(t, err)
}

// TestReopen_AfterTheManifestFailed: Pebble cannot be closed then, and another one is opened beside what is left of it.
func TestReopen_AfterTheManifestFailed(t *testing.T) {
	s, disk := breaking(t)
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	for range 10 { // more than the ring has room for: some get into tables
		a.append(w.Batch(1, 100<<10), 0)
	}
	a.awaitAck(w.Last)
	must(t, s.sealAt(e, w, 1, nil))
	run := s.host.current().Identity().Run
	disk.FailOnce("MANIFEST")
	_ = s.remove(e, 1, nil) // cuts its range out, which writes the manifest
	await(t, "a new run", func() bool { log := s.host.current(); return log != nil && log.Identity().Run != run })
	b := s.dial().openAppend(extent("s1"))
	b.append(new(extentlogtest.Writer).Batch(3, 100), 0)
	b.awaitAck(3)
}

// hostOn is a store host without a network, for virtual time, and its disk. ran gets the end of its Run.
func hostOn(t *testing.T) (h *Host, disk *memdisk.Disk, stop func(), ran chan error) {
	t.Helper()
	disk = memdisk.New()
	cfg := DefaultConfig()
	cfg.Dir = "unused"
	h, err := New(cfg, Deps{
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Self: "s1", Run: core.RunID{ID: core.NewID(time.Now())},
		Open: func(_ string, o extentlog.Options) (extentlog.Log, error) { return disk.Open(o) },
	})
	must(t, err)
	must(t, h.Start(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ran = make(chan error, 1)
	go func() { ran <- h.Run(ctx) }()
	return h, disk, cancel, ran
}

// failAndHang makes the log of a host fail on a disk that hangs from then on.
func failAndHang(t *testing.T, h *Host, disk *memdisk.Disk) (release func()) {
	t.Helper()
	log := h.current()
	e, w := extent("s1"), new(extentlogtest.Writer)
	must(t, log.Open(e))
	time.Sleep(time.Second) // until nothing is written
	disk.FailOnce(".seg")
	_, err := extentlogtest.Append(log, e.ID, w.Batch(1, 100), 0)
	wantCode(t, err, core.CodeUnavailable)
	return disk.Hang()
}

// TestReopen_OfADiskThatHangs: a probe that is not answered ends the process, as any other write that hangs.
func TestReopen_OfADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, disk, _, ran := hostOn(t)
		release := failAndHang(t, h, disk)
		began := time.Now()
		if err := <-ran; !errors.Is(err, extentlog.ErrHangs) {
			t.Errorf("run: %v, want %v", err, extentlog.ErrHangs)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s, want a minute at most", took)
		}
		release()
		synctest.Wait()
		_ = h.Stop(t.Context())
	})
}

// TestReopen_EndsWithItsContext: a probe that hangs keeps no host from draining.
func TestReopen_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, disk, stop, ran := hostOn(t)
		release := failAndHang(t, h, disk)
		time.Sleep(time.Second)
		stop()
		began := time.Now()
		must(t, <-ran)
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		release()
		synctest.Wait()
		_ = h.Stop(t.Context())
	})
}

// TestStop_OnADiskThatHangs: a host ends all the same.
func TestStop_OnADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, disk, stop, ran := hostOn(t)
		must(t, h.current().Open(extent("s1")))
		time.Sleep(time.Second) // until nothing is written
		release := disk.Hang()
		stop()
		must(t, <-ran)
		began := time.Now()
		if err := h.Stop(t.Context()); !errors.Is(err, extentlog.ErrHangs) {
			t.Errorf("stop: %v, want %v", err, extentlog.ErrHangs)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s, want a minute at most", took)
		}
		release()
		synctest.Wait()
	})
}

// readsHang is a log whose reads are not answered before released is closed.
type readsHang struct {
	extentlog.Log
	released chan struct{}
	closed   bool
}

func (l *readsHang) Read(core.ExtentID, core.Seq, core.Seq, int) ([]byte, error) {
	<-l.released
	return nil, nil
}

func (l *readsHang) Close() error {
	l.closed = true
	return errors.Join(l.Log.Close(), extentlog.ErrLeft)
}

// TestStop_WhileAReadHangs: the disk does not answer a consumer's read. The host closes its log all the same.
func TestStop_WhileAReadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, stop, ran := hostOn(t)
		log := &readsHang{Log: h.current(), released: make(chan struct{})}
		h.mu.Lock()
		h.mu.log = log
		h.mu.Unlock()
		h.run(func() { _, _ = log.Read(extent("s1").ID, 1, 1, 1<<20) })
		stop()
		must(t, <-ran)
		stopped := make(chan error, 1)
		go func() { stopped <- h.Stop(t.Context()) }()
		select {
		case err := <-stopped:
			if !log.closed || !errors.Is(err, extentlog.ErrLeft) {
				t.Errorf("stop: %v, log closed: %t; want %v, and a closed log", err, log.closed, extentlog.ErrLeft)
			}
		case <-time.After(15 * time.Second): // Close takes up to 45 s more
			t.Error("the host does not close its log")
		}
		close(log.released)
		synctest.Wait()
	})
}
