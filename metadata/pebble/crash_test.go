package pebble

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// acknowledged is what writers were told is stored.
type acknowledged struct {
	mu   sync.Mutex
	rows map[metadata.Key]int // the value of the last answer
}

func (a *acknowledged) set(k metadata.Key, value int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows[k] = value
}

func (a *acknowledged) copy() map[metadata.Key]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows := map[metadata.Key]int{}
	for k, v := range a.rows {
		rows[k] = v
	}
	return rows
}

// TestStore_CrashKeepsAcknowledged takes the disk as a crash in the middle of concurrent writes would leave it, with
// unsynced data lost in part: everything acknowledged before is there, nothing is newer than what was written, and the
// store works.
func TestStore_CrashKeepsAcknowledged(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { crashWhileWriting(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func crashWhileWriting(t *testing.T, die *rand.Rand) {
	disk := vfs.NewCrashableMem()
	if err := disk.MkdirAll("/data", os.ModePerm); err != nil {
		t.Fatal(err)
	}
	root, err := disk.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Sync(); err != nil { // the parent is there before the server starts
		t.Fatal(err)
	}
	s, err := open(disk, "/data/metadata", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	acked := &acknowledged{rows: map[metadata.Key]int{}}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	defer writers.Wait()
	defer close(stop)
	for w := range 4 {
		writers.Go(func() { writeUntil(t, s, w, acked, stop) })
	}
	for round := range 3 {
		atLeast(acked, 100*(round+1))
		before := acked.copy()
		percent := 0 // of the unsynced data that survives
		if round > 0 {
			percent = die.IntN(101)
		}
		clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: die})
		checkCrashed(t, clone, before, fmt.Sprint("round ", round))
	}
}

// writeUntil inserts rows, updates each, and puts a counter, until it is stopped.
func writeUntil(t *testing.T, s *Store, writer int, acked *acknowledged, stop <-chan struct{}) {
	counter := metadata.Key{Partition: "counter", Row: fmt.Sprint(writer)}
	for i := 1; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		k := key(fmt.Sprintf("%d-%06d", writer, i))
		if err := s.Insert(t.Context(), swaps, k, []byte{1}); err != nil {
			t.Error(err)
			return
		}
		acked.set(k, 1)
		row, err := s.Get(t.Context(), swaps, k, metadata.Serial)
		if err != nil {
			t.Error(err)
			return
		}
		if err := s.Update(t.Context(), swaps, k, row.Version, []byte{2}, 0); err != nil {
			t.Error(err)
			return
		}
		acked.set(k, 2)
		if err := s.Put(t.Context(), puts, counter, fmt.Append(nil, i), time.UnixMicro(int64(i)), time.Hour, metadata.One); err != nil {
			t.Error(err)
			return
		}
		acked.set(counter, i)
	}
}

// atLeast waits until so many rows are acknowledged.
func atLeast(a *acknowledged, n int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		a.mu.Lock()
		have := len(a.rows)
		a.mu.Unlock()
		if have >= n {
			return
		}
	}
}

func checkCrashed(t *testing.T, disk vfs.FS, acked map[metadata.Key]int, what string) {
	t.Helper()
	s, err := open(disk, "/data/metadata", 0, nil)
	if err != nil {
		t.Fatalf("%s: open after the crash: %v", what, err)
	}
	defer s.Close()
	for k, want := range acked {
		table := swaps
		if k.Partition == "counter" {
			table = puts
		}
		row, err := s.Get(t.Context(), table, k, metadata.Serial)
		if err != nil {
			t.Fatalf("%s: acknowledged row %s: %v", what, k.Row, err)
		}
		var got int
		if table == swaps {
			got = int(row.Value[0])
		} else {
			fmt.Sscan(string(row.Value), &got)
		}
		if got < want {
			t.Fatalf("%s: row %s is at %d, acknowledged is %d", what, k.Row, got, want)
		}
	}
	if err := s.Insert(t.Context(), swaps, key("after"), nil); core.CodeOf(err) != "" {
		t.Fatalf("%s: insert after the crash: %v", what, err)
	}
}
