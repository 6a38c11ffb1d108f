package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// collector keeps the first result of every file and counts the others.
type collector struct {
	mu struct {
		sync.Mutex
		byPath     map[string]Result
		duplicates int
		conflicts  []string // files with two different results
		latencies  []time.Duration
		changed    chan struct{} // closed and renewed at each new result
	}
}

func newCollector() *collector {
	c := &collector{}
	c.mu.byPath = make(map[string]Result)
	c.mu.changed = make(chan struct{})
	return c
}

func (c *collector) add(r Result, now time.Time) (fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.mu.byPath[r.Path]; ok {
		c.mu.duplicates++
		if old.SHA256 != r.SHA256 || old.Size != r.Size || old.Lines != r.Lines {
			c.mu.conflicts = append(c.mu.conflicts, r.Path)
		}
		return false
	}
	c.mu.byPath[r.Path] = r
	c.mu.latencies = append(c.mu.latencies, now.Sub(time.UnixMicro(r.Task)))
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
	return true
}

func (c *collector) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.byPath)
}

// wait until n files have a result; an error when nothing moves for a long time.
func (c *collector) wait(ctx context.Context, n int) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		c.mu.Lock()
		have, changed := len(c.mu.byPath), c.mu.changed
		c.mu.Unlock()
		if have >= n {
			return nil
		}
		timer.Reset(patience)
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return core.Errorf(core.CodeDeadline, "%d of %d results, and none for %s", have, n, patience)
		}
	}
}

// collect consumes the results.
func (r *run) collect(ctx context.Context) error {
	add, end := r.start("results", len(r.files))
	defer end()
	return r.c.Work(ctx, resultsQueue, collectGroup, func(_ context.Context, d *client.Delivery) error {
		var res Result
		if err := json.Unmarshal(d.Body, &res); err != nil {
			return fmt.Errorf("result does not parse: %w", err)
		}
		if r.results.add(res, time.Now()) {
			add(1)
		}
		return nil
	}, client.Prefetch(500))
}

// counter counts deliveries of a group.
type counter struct {
	mu          sync.Mutex
	deliveries  int
	redelivered int
}

func (c *counter) note(attempt int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveries++
	if attempt > 1 {
		c.redelivered++
	}
}

// firstError keeps the first of many.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
