package publishers

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire/ws"
)

// idle is a publisher that nobody publishes with.
func idle(q metadata.QueueRecord) *publish.Publisher {
	return publish.New(publish.Config{
		Queue: q.Spec.Path, Log: slog.New(slog.DiscardHandler),
		Route: func(context.Context) ([]publish.Host, error) {
			return nil, core.Errorf(core.CodeUnavailable, "nobody is there")
		},
		Dial: func(context.Context, publish.Host) (*ws.Mux, error) {
			return nil, core.Errorf(core.CodeUnavailable, "nobody is there")
		},
	})
}

func queue() metadata.QueueRecord {
	return metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(time.Now())}}
}

func (p *Pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.byQueue)
}

func TestPool_BoundedAndSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(2, time.Minute, idle)
		if _, err := p.Take(queue()); core.CodeOf(err) != core.CodeDraining {
			t.Errorf("before it is open: %v", err)
		}
		p.Open()
		defer p.Close()
		for range 5 {
			l, err := p.Take(queue())
			if err != nil {
				t.Fatal(err)
			}
			p.GiveBack(l)
			if p.size() > 2 {
				t.Fatalf("%d publishers are open, want at most 2", p.size())
			}
		}
		p.Sweep()
		if p.size() != 2 {
			t.Errorf("%d publishers after an early sweep, want 2", p.size())
		}
		time.Sleep(time.Minute)
		p.Sweep()
		if p.size() != 0 {
			t.Errorf("%d publishers after a minute, want none", p.size())
		}
		shared := queue()
		first, err := p.Take(shared)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := p.Take(shared); err != nil || again != first {
			t.Errorf("two calls for one queue do not share a publisher: %v", err)
		}
		if _, err := p.Take(queue()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Take(queue()); core.CodeOf(err) != core.CodeThrottled {
			t.Errorf("all are in use: %v", err)
		}
	})
}
