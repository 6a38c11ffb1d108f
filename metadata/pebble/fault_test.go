package pebble

import (
	"context"
	"fmt"
	"os"
	"path"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

var (
	swaps = metadata.Table{Name: "cas", Rule: metadata.RuleCAS}
	puts  = metadata.Table{Name: "put", Rule: metadata.RulePut}
)

func key(row string) metadata.Key { return metadata.Key{Partition: "p", Row: row} }

// faultDisk is a disk whose syncs do as onSync says, those that end a log as onEnd says, and the making of whose logs
// as onLog says.
type faultDisk struct {
	vfs.FS
	onSync, onEnd, onLog *atomic.Pointer[func() error]
}

type faultFile struct {
	vfs.File
	disk faultDisk
	last int // bytes of the last write
}

func newFaultDisk(fs vfs.FS) faultDisk {
	return faultDisk{fs, new(atomic.Pointer[func() error]), new(atomic.Pointer[func() error]), new(atomic.Pointer[func() error])}
}

func does(on *atomic.Pointer[func() error]) error {
	if f := on.Load(); f != nil {
		return (*f)()
	}
	return nil
}

func (d faultDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultFile{File: f, disk: d}, nil
}

func (d faultDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if path.Ext(name) == ".log" {
		if err := does(d.onLog); err != nil {
			return nil, err
		}
	}
	return d.wrap(d.FS.Create(name, c))
}

func (d faultDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.ReuseForWrite(from, to, c))
}

func (f *faultFile) Write(b []byte) (int, error) {
	f.last = len(b)
	return f.File.Write(b)
}

// trailer is how long the record is that ends a log.
const trailer = 11

func (f *faultFile) sync(do func() error) error {
	if f.last == trailer {
		if err := does(f.disk.onEnd); err != nil {
			return err
		}
	}
	if err := does(f.disk.onSync); err != nil {
		return err
	}
	return do()
}

func (f *faultFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *faultFile) SyncData() error { return f.sync(f.File.SyncData) }
func (f *faultFile) SyncTo(n int64) (bool, error) {
	return true, f.sync(f.File.Sync)
}

func openFaulty(t *testing.T) (*Store, faultDisk) {
	t.Helper()
	disk := newFaultDisk(vfs.NewMem())
	if err := disk.MkdirAll("data", os.ModePerm); err != nil {
		t.Fatal(err)
	}
	s, err := open(disk, "data/metadata", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, disk
}

// A disk that fails ends the store, not the process, and what may be written is not called written nor lost.
func TestStore_DiskFails(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		t.Run(full.Error(), func(t *testing.T) { failDisk(t, full) })
	}
}

func failDisk(t *testing.T, full error) {
	s, disk := openFaulty(t)
	if err := s.Insert(t.Context(), swaps, key("a"), nil); err != nil {
		t.Fatal(err)
	}
	broken := func() error { return &os.PathError{Op: "sync", Path: "wal", Err: full} }
	disk.onSync.Store(&broken)
	if err := s.Insert(t.Context(), swaps, key("b"), nil); core.CodeOf(err) != core.CodeUnknown {
		t.Errorf("insert while the disk fails: %v, want unknown", err)
	}
	for range 2 {
		if err := s.Insert(t.Context(), swaps, key("c"), nil); core.CodeOf(err) != core.CodeNoSpace {
			t.Errorf("insert after the failure: %v, want no space", err)
		}
		if _, err := s.Get(t.Context(), swaps, key("a"), metadata.Serial); core.CodeOf(err) != core.CodeNoSpace {
			t.Errorf("get after the failure: %v, want no space", err)
		}
	}
	if s.Failed() == nil || s.Close() == nil {
		t.Error("the store does not say that it failed")
	}
}

// While a write waits for the disk its caller leaves at the deadline, Serial reads show nothing that a crash could take
// back, and One reads go on.
func TestStore_DiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := openFaulty(t)
		release := make(chan struct{})
		hang := func() error { <-release; return nil }
		disk.onSync.Store(&hang)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		if err := s.Insert(ctx, swaps, key("a"), []byte("x")); core.CodeOf(err) != core.CodeUnknown || time.Since(begin) != 2*time.Second {
			t.Errorf("insert: %v after %s, want unknown after 2s", err, time.Since(begin))
		}
		for c, want := range map[metadata.Consistency]core.Code{metadata.One: "", metadata.Quorum: core.CodeUnavailable, metadata.Serial: core.CodeUnavailable} {
			begin := time.Now()
			_, err := s.Get(t.Context(), swaps, key("a"), c)
			if core.CodeOf(err) != want || time.Since(begin) > metadata.DefaultDeadline {
				t.Errorf("get at %d: %v after %s, want %q", c, err, time.Since(begin), want)
			}
			_, _, err = s.List(t.Context(), swaps, "p", "", 10, c)
			if core.CodeOf(err) != want {
				t.Errorf("list at %d: %v, want %q", c, err, want)
			}
		}
		if err := s.Update(t.Context(), swaps, key("a"), 1, nil, 0); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("update of the row under way: %v, want unavailable", err)
		}
		disk.onSync.Store(nil)
		close(release)
		synctest.Wait()
		row, err := s.Get(t.Context(), swaps, key("a"), metadata.Serial)
		if err != nil || string(row.Value) != "x" || row.Version == 0 {
			t.Errorf("get after the disk answers: %+v, %v", row, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestStore_BoundedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := openFaulty(t)
		release := make(chan struct{})
		hang := func() error { <-release; return nil }
		disk.onSync.Store(&hang)
		codes := make(chan core.Code, 2*maxCalls)
		for i := range 2 * maxCalls {
			go func() {
				codes <- core.CodeOf(s.Insert(t.Context(), swaps, key(fmt.Sprint(i)), nil))
			}()
		}
		count := map[core.Code]int{}
		for range 2 * maxCalls {
			count[<-codes]++
		}
		if count[core.CodeUnknown] != maxCalls || count[core.CodeUnavailable] != maxCalls {
			t.Errorf("outcomes are %v, want %d unknown and as many unavailable", count, maxCalls)
		}
		disk.onSync.Store(nil)
		close(release)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestStore_SweepForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openFaulty(t)
		ctx := t.Context()
		put := func(row string, second int64, ttl time.Duration) {
			t.Helper()
			if err := s.Put(ctx, puts, key(row), []byte("x"), time.Unix(second, 0), ttl, metadata.One); err != nil {
				t.Fatal(err)
			}
		}
		put("for ever", 1, 0)
		put("expires", 1, time.Minute)
		put("renewed", 1, time.Minute)
		put("renewed", 2, 100*time.Hour)
		put("removed", 1, 0)
		if err := s.Remove(ctx, puts, key("removed"), time.Unix(2, 0), metadata.One); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := s.stored(t); n != 4 {
			t.Errorf("%d rows stored after an hour, want 4: removals are remembered for %s", n, metadata.Grace)
		}
		put("removed", 1, 0) // comes late, loses
		time.Sleep(metadata.Grace)
		if n := s.stored(t); n != 2 {
			t.Errorf("%d rows stored after the grace, want 2", n)
		}
		rows, _, err := s.List(ctx, puts, "p", "", 10, metadata.Serial)
		if err != nil || len(rows) != 2 || rows[0].Key.Row != "for ever" || rows[1].Key.Row != "renewed" {
			t.Errorf("rows are %v, %v", rows, err)
		}
		if due, err := s.due(now().Add(1000 * time.Hour)); err != nil || len(due) != 1 {
			t.Errorf("sweep index holds %q, %v; want the renewed row", due, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// stored counts the rows on disk, seen by readers or not.
func (s *Store) stored(t *testing.T) (n int) {
	t.Helper()
	iter, err := s.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	for valid := iter.First(); valid; valid = iter.Next() {
		if iter.Key()[0] == prefixRow {
			n++
		}
	}
	return n
}

// A read that saw a change before its sync failed must not answer it: the change may be gone after the restart.
func TestStore_ReadAcrossAFailure(t *testing.T) {
	s, disk := openFaulty(t)
	release := make(chan struct{})
	broken := func() error { <-release; return &os.PathError{Op: "sync", Path: "wal", Err: syscall.EIO} }
	disk.onSync.Store(&broken)
	written := make(chan error, 1)
	go func() { written <- s.Insert(t.Context(), swaps, key("a"), []byte("x")) }()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		cell, err := s.cell(rowKey(swaps, key("a")))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the change under way: %+v, %v; want it readable", cell, err)
		}
		if string(cell.Value) == "x" {
			break
		}
	}
	close(release)
	if err := <-written; core.CodeOf(err) != core.CodeUnknown {
		t.Fatalf("insert: %v, want unknown", err)
	}
	if err := s.barrier(); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("the read goes on with %v, want unavailable", err)
	}
}

// fillLog inserts rows until the log that takes them is full, or a call fails.
func fillLog(ctx context.Context, s *Store) error {
	value := make([]byte, 16<<10)
	for i := range 2 * memTable / len(value) {
		if err := s.Insert(ctx, swaps, key(fmt.Sprint("fill", i)), value); err != nil {
			return err
		}
	}
	return nil
}

// An error while a full log is ended fails the store, not the process.
func TestStore_LogCannotBeEnded(t *testing.T) {
	s, disk := openFaulty(t)
	broken := func() error { return &os.PathError{Op: "sync", Path: "wal", Err: syscall.EIO} }
	disk.onEnd.Store(&broken)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := fillLog(ctx, s); core.CodeOf(err) != core.CodeUnknown {
		t.Errorf("insert at the end of the log: %v, want unknown", err)
	}
	if err := s.Insert(t.Context(), swaps, key("b"), nil); core.CodeOf(err) != core.CodeUnavailable || s.Failed() == nil {
		t.Errorf("insert afterwards: %v, and failed %v; want unavailable", err, s.Failed())
	}
	if err := s.Close(); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("close: %v, want unavailable", err)
	}
}

// The store closes although its log fails meanwhile, and a call never ends.
func TestStore_LogFailsWhileItCloses(t *testing.T) {
	s, disk := openFaulty(t)
	ending, closing := make(chan struct{}), make(chan struct{})
	broken := func() error {
		close(ending)
		<-closing
		return &os.PathError{Op: "sync", Path: "wal", Err: syscall.EIO}
	}
	disk.onEnd.Store(&broken)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	filled := make(chan error, 1)
	go func() { filled <- fillLog(ctx, s) }()
	<-ending
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	<-s.ctx.Done()
	close(closing)
	if err := <-closed; core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("close: %v, want unavailable", err)
	}
	if err := <-filled; core.CodeOf(err) != core.CodeUnknown {
		t.Errorf("insert: %v, want unknown", err)
	}
}

// A shortage of file descriptors is waited for.
func TestStore_LogWaitsForDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := openFaulty(t)
		tries := 0
		short := func() error {
			if tries++; tries < 10 {
				return &os.PathError{Op: "open", Path: "wal", Err: syscall.EMFILE}
			}
			return nil
		}
		disk.onLog.Store(&short)
		if err := fillLog(t.Context(), s); err != nil {
			t.Error(err)
		}
		if tries < 10 {
			t.Errorf("%d tries to make a log, want 10", tries)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A log that cannot be ended when the store closes is an error of Close.
func TestStore_LogCannotBeEndedAtClose(t *testing.T) {
	s, disk := openFaulty(t)
	broken := func() error { return &os.PathError{Op: "sync", Path: "wal", Err: syscall.EIO} }
	disk.onEnd.Store(&broken)
	if err := s.Close(); core.CodeOf(err) != core.CodeInternal {
		t.Errorf("close: %v, want internal", err)
	}
}
