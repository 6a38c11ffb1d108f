package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// testSite has the programs that `make build peers` puts into bin.
func testSite(t *testing.T) *site {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	return &site{
		columba: filepath.Join(bin, "columba"), peers: filepath.Join(bin, "peers"), dir: t.TempDir(), heap: "512M",
	}
}

// eachBroker runs f against a fresh cluster of each broker, one after the other.
func eachBroker(t *testing.T, f func(ctx context.Context, t *testing.T, d driver)) {
	for _, b := range brokers {
		t.Run(b.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			c, err := testSite(t).start(ctx, b)
			if errors.Is(err, errNotInstalled) {
				t.Skipf("NOT TESTED: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.stop()
			d, err := driverOf(b.kind, c.addr())
			if err != nil {
				t.Fatal(err)
			}
			f(ctx, t, d)
		})
	}
}

// TestDriver_LosesNothing: a thousand messages are published, one by one and many at a time. All are consumed, and then
// the broker has none that is not acknowledged.
func TestDriver_LosesNothing(t *testing.T) {
	const count, alone = 1000, 20
	eachBroker(t, func(ctx context.Context, t *testing.T, d driver) {
		j := measure.Job{
			Kind: kindPublish, Queue: "conformance", InFlight: 100, Prefetch: 200, Consumers: 2, For: time.Minute,
		}
		if err := d.create(ctx, j.Queue); err != nil {
			t.Fatal("create:", err)
		}
		p, err := d.publisher(ctx, j)
		if err != nil {
			t.Fatal("publisher:", err)
		}
		var mu sync.Mutex
		answers := 0
		for n := range count {
			body := fmt.Appendf(nil, "message %d", n)
			if n < alone {
				err = p.publish(ctx, body)
			} else {
				err = p.start(ctx, body, func(err error) {
					mu.Lock()
					defer mu.Unlock()
					if answers++; err != nil {
						t.Errorf("message %d: %v", n, err)
					}
				})
			}
			if err != nil {
				t.Fatalf("message %d: %v", n, err)
			}
		}
		if err := p.close(ctx); err != nil {
			t.Fatal("close:", err)
		}
		if answers != count-alone {
			t.Fatalf("%d messages were answered, want %d", answers, count-alone)
		}

		if err := d.group(ctx, j.Queue); err != nil {
			t.Fatal("group:", err)
		}
		within, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		seen := make(map[string]bool)
		err = consumeWith(within, d, j, func(body []byte) {
			mu.Lock()
			defer mu.Unlock()
			if seen[string(body)] = true; len(seen) == count {
				end()
			}
		})
		if err != nil {
			t.Error("consume:", err)
		}
		if len(seen) != count {
			t.Fatalf("%d messages came, want %d", len(seen), count)
		}
		soon, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		var left int64
		err = again(soon, func(ctx context.Context) (err error) {
			if left, err = d.left(ctx, j.Queue); err == nil && left != 0 {
				err = errors.New("some are left")
			}
			return err
		})
		if err != nil {
			t.Errorf("%d messages are not acknowledged: %v", left, err)
		}
	})
}
