package pebble

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// benchQueues is how many idle queues a small server must carry.
const benchQueues = 10_000

func fillQueues(b *testing.B, s *Store, n int) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				spec := core.QueueSpec{Path: fmt.Sprintf("/bench/queue-%06d", i)}.WithDefaults(1, 1)
				id := core.QueueID{ID: core.NewID(time.Now())}
				if err := createQueue(b.Context(), s, id, spec); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func createQueue(ctx context.Context, s *Store, id core.QueueID, spec core.QueueSpec) error {
	if err := metadata.Create(ctx, s, metadata.Names, metadata.NameKey(spec.Path), metadata.NameRecord{Queue: id, Spec: spec}); err != nil {
		return err
	}
	return metadata.Create(ctx, s, metadata.Queues, metadata.QueueKey(id), metadata.QueueRecord{ID: id, Spec: spec, Created: time.Now()})
}

// BenchmarkCreateQueue is two durable writes; 64 callers share the fsyncs.
func BenchmarkCreateQueue(b *testing.B) {
	s, err := Open(b.TempDir(), 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ResetTimer()
	fillQueues(b, s, b.N)
}

// BenchmarkReopen opens a directory of 10,000 queues and reads all their names: what a server does at its start.
func BenchmarkReopen(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(dir, 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	fillQueues(b, s, benchQueues)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Open(dir, 0, nil)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, err := range metadata.All[metadata.NameRecord](b.Context(), s, metadata.Names, metadata.PartitionPath, metadata.Serial) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != benchQueues {
			b.Fatalf("%d names, want %d", n, benchQueues)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	pid, stop := startHolder(b, dir)
	defer stop()
	b.ReportMetric(residentBytes(pid)/(1<<20), "rss-MiB") // of a process that did this once
}

// residentBytes is a process's resident memory, 0 where it cannot be read.
func residentBytes(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, pages float64
	fmt.Sscan(string(status), &size, &pages)
	return pages * float64(os.Getpagesize())
}

// BenchmarkGet reads one row with no write under way.
func BenchmarkGet(b *testing.B) {
	s, err := Open(b.TempDir(), 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fillQueues(b, s, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(b.Context(), metadata.Names, metadata.NameKey("/bench/queue-000050"), metadata.Serial); err != nil {
			b.Fatal(err)
		}
	}
}
