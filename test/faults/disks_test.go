package faults

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// onSmallDisks is a cluster of stores of which the first ones are on disks of their own, of so many bytes.
func onSmallDisks(t *testing.T, stores, small int, bytes int64) *process.Cluster {
	t.Helper()
	dirs := make(map[int]string)
	for i := range small {
		dirs[1+i] = filepath.Join(process.SmallDisk(t, bytes), "data")
	}
	return process.StartCluster(t, process.Layout{
		Stores: stores, Inputs: 1, Outputs: 1, Data: func(i int) string { return dirs[i] },
	})
}

// publishAll publishes n messages of 4,000 bytes, many at once, and counts what publishers are told.
func publishAll(ctx context.Context, t *testing.T, c *client.Client, n int) (acked, failed int64, last error) {
	t.Helper()
	p, err := c.Publisher(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(strings.Repeat("x", 4000))
	var ok, no atomic.Int64
	var why atomic.Pointer[error]
	for range n {
		if err := p.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) {
			if err != nil {
				why.Store(&err)
				no.Add(1)
				return
			}
			ok.Add(1)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if e := why.Load(); e != nil {
		last = *e
	}
	return ok.Load(), no.Load(), last
}

// consumed acknowledges messages of a group until it has n of them.
func consumed(t *testing.T, c *client.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	con, err := c.Consumer(ctx, queue, "g", client.Prefetch(1000))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[core.Receipt]bool)
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(got), n, err)
		}
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
		if got[d.Receipt] = true; len(got) == n {
			break
		}
	}
	if err := con.Close(ctx); err != nil || len(got) < n {
		t.Fatalf("consumed %d messages, want %d: %v", len(got), n, err)
	}
}

// TestDisk_OneOfFourIsSmall: a store whose disk is full takes no more, and others do. It does not spin.
func TestDisk_OneOfFourIsSmall(t *testing.T) {
	long(t)
	c := onSmallDisks(t, 4, 1, 96<<20)
	s, small, spare := c.Controller, c.Stores[0], c.Stores[3]
	s.Must("", "create", "queue", queue)
	s.Must("", "create", "group", queue, "g", "--start", "earliest")
	conn, acked := s.Client(), 0
	publish := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		ok, failed, err := publishAll(ctx, t, conn, n)
		if acked += int(ok); int(ok) != n {
			t.Errorf("%d of %d messages are acknowledged, %d failed: %v", ok, n, failed, err)
		}
	}
	used := func() float64 {
		return 1 - small.Metric("columba_storehost_disk_free_bytes")/small.Metric("columba_storehost_disk_bytes")
	}
	spare.Kill() // else the small disk is seldom chosen
	for used() < 0.7 && acked < 40_000 {
		publish(2000)
	}
	if used() < 0.7 {
		t.Errorf("after %d messages %.0f %% of the small disk are used", acked, 100*used())
	}
	publish(5000)
	spare.Start()
	process.Eventually(t, "the spare store is ready", spare.Ready)
	publish(60_000 - acked)
	consumed(t, conn, acked)
	was := small.Metric("process_cpu_seconds_total")
	<-time.After(10 * time.Second)
	idle := small.Metric("process_cpu_seconds_total") - was
	if idle > 1 {
		t.Errorf("the full store used %.1f s of processor time in 10 s", idle)
	}
	t.Logf("%d of 60000 acknowledged and consumed, disk %.0f %% full, idle %.2f CPUs", acked, 100*used(), idle/10)
}

// TestDisk_AllAreFull: publishing is refused within seconds, consuming and retention go on, and publishing goes on by
// itself when they have made room. A store that starts on its full disk serves what it has.
func TestDisk_AllAreFull(t *testing.T) {
	long(t)
	c := onSmallDisks(t, 3, 3, 96<<20)
	s := c.Controller
	s.Must("", "create", "queue", queue, "--consumed-retention", "1s")
	s.Must("", "create", "group", queue, "g", "--start", "earliest")
	conn := s.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	p, err := conn.Publisher(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(strings.Repeat("x", 4000))
	acked, refusedAfter := 0, time.Duration(0)
	for err == nil {
		began := time.Now()
		var errs []error
		results := make(chan error, 100)
		for range cap(results) {
			if err := p.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) { results <- err }); err != nil {
				t.Fatal(err)
			}
		}
		for range cap(results) {
			if err := <-results; err != nil {
				errs = append(errs, err)
				continue
			}
			acked++
		}
		if len(errs) > 0 {
			err, refusedAfter = errs[0], time.Since(began)
		}
	}
	if core.CodeOf(err) != core.CodeNoSpace || refusedAfter > 5*time.Second {
		t.Errorf("after %d messages publishing was refused after %s: %v; want %s within 5 s", acked, refusedAfter, err, core.CodeNoSpace)
	}
	c.Stores[0].Restart()
	consumed(t, conn, acked)
	process.EventuallyWithin(t, 5*time.Minute, "publishing goes on", func() bool {
		return s.Run(lines(1), "publish", queue).Code == 0
	})
	consumed(t, conn, 1)
	t.Logf("%d messages filled them, publishing refused after %s, goes on by itself", acked, refusedAfter.Round(time.Millisecond))
}
