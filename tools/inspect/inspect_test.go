package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// fill makes a store with one extent of three batches of two records.
func fill(t *testing.T, dir string) core.ExtentID {
	t.Helper()
	id := core.ExtentID{ID: core.NewID(time.UnixMilli(1_700_000_000_000))}
	write(t, dir, id, []string{"m1", "m2", "m3", "m4", "m5", "m6"}, nil)
	return id
}

// write makes a store with one extent of batches of two messages, and goes on with what then does.
func write(t *testing.T, dir string, id core.ExtentID, messages []string, then func(extentlog.Log, core.Extent, uint32)) {
	t.Helper()
	log, err := extentlog.Open(dir, extentlog.Options{Store: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	now := id.Time()
	e := core.Extent{ID: id, Kind: core.KindLog, Durability: core.DurabilityFsync, Replicas: []core.HostID{"s1"}}
	if err := log.Open(e); err != nil {
		t.Fatal(err)
	}
	var sum uint32
	for i := 0; i < len(messages); i += 2 {
		batch := make([]byte, wire.BatchHeaderLen)
		for _, m := range messages[i : i+2] {
			if batch, err = wire.AppendRecord(batch, &wire.Record{Payload: []byte(m)}); err != nil {
				t.Fatal(err)
			}
		}
		sum = wire.ExtendChecksum(sum, batch[wire.BatchHeaderLen:])
		wire.PutBatchHeader(batch, wire.BatchHeader{Count: 2, Base: core.Seq(i + 1), AppendTime: now.UnixMicro(), Checksum: sum})
		done := make(chan error, 1)
		log.Append(e.ID, batch, 0, func(_ core.Seq, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if then != nil {
		then(log, e, sum)
	}
}

func TestExtent_ReadsAndVerifies(t *testing.T) {
	data := t.TempDir()
	id := fill(t, filepath.Join(data, "store"))
	for _, dir := range []string{data, filepath.Join(data, "store")} {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		r, err := s.Extent(id, func(rec Record) error {
			got = append(got, fmt.Sprintf("%d %s", rec.Seq, rec.Payload))
			return nil
		})
		if err != nil || r.Damage != nil || r.Batches != 3 || r.Records != 6 || r.Verified != 6 {
			t.Errorf("report %+v, %v: want 3 good batches of 6 records", r, err)
		}
		if diff := cmp.Diff([]string{"1 m1", "2 m2", "3 m3", "4 m4", "5 m5", "6 m6"}, got); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
		stop := errors.New("enough")
		if _, err := s.Extent(id, func(Record) error { return stop }); err != stop {
			t.Errorf("a visitor's error came back as %v", err)
		}
		if _, err := s.Extent(core.ExtentID{ID: core.ID{1}}, nil); !errors.Is(err, core.ErrNotFound) {
			t.Errorf("unknown extent: %v, want not found", err)
		}
		if list, err := s.Extents(); err != nil || len(list) != 1 || list[0].Extent.ID != id {
			t.Errorf("extents %v, %v, want the one", list, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("4711\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); core.CodeOf(err) == core.CodeLocked && !strings.Contains(err.Error(), "in use by process 4711;") {
			t.Errorf("the error of a locked directory names no process: %v", err)
		}
		if _, err := Open(dir); core.CodeOf(err) != core.CodeLocked {
			t.Errorf("second open: %v, want locked", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCheck_FindsDamage(t *testing.T) {
	rec, err := wire.AppendRecord(nil, &wire.Record{Payload: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	good := wire.Batch{BatchHeader: wire.BatchHeader{Count: 1, Base: 5, Checksum: wire.ExtendChecksum(7, rec)}, Records: rec}
	for name, change := range map[string]func(*wire.Batch){
		"base":     func(b *wire.Batch) { b.Base = 6 },
		"count":    func(b *wire.Batch) { b.Count = 2 },
		"checksum": func(b *wire.Batch) { b.Checksum++ },
		"record":   func(b *wire.Batch) { b.Records = append(rec[:len(rec)-1:len(rec)-1], 'y') },
	} {
		b, sum := good, uint32(7)
		if err := check(b, 5, &sum); err != nil {
			t.Fatalf("good batch: %v", err)
		}
		change(&b)
		sum = 7
		if err := check(b, 5, &sum); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s changed: %v, want corrupt", name, err)
		}
	}
}

func TestOpen_WithoutAStore(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, core.ErrNotFound) {
		t.Errorf("empty directory: %v, want not found", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("looking left %v, %v", left, err)
	}
}
