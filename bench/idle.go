package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

type admin = *client.Admin

// settle is how long a server is left alone before its memory is looked at.
const settle = 2 * time.Second

// idle measures a server that nobody uses: empty, with many queues, and with a group for each.
func (r *rig) idle() error {
	s, err := r.server("idle")
	if err != nil {
		return err
	}
	defer s.remove()
	empty, err := r.memoryAtRest(s)
	if err != nil {
		return err
	}
	r.report.atMost("idle server, RSS", empty/(1<<20), 60, "MiB")
	emptyHeap, emptyRoutines, err := r.live(s)
	if err != nil {
		return err
	}
	steps := []struct {
		what   string
		create func(context.Context, admin, int) error
	}{
		{"queues", func(ctx context.Context, a admin, i int) error {
			_, err := a.CreateQueue(ctx, core.QueueSpec{Path: idleQueue(i)})
			return err
		}},
		{"queues with a group", func(ctx context.Context, a admin, i int) error {
			_, err := a.CreateGroup(ctx, core.GroupSpec{Queue: idleQueue(i), Name: groupName})
			return err
		}},
	}
	for _, step := range steps {
		began := time.Now()
		if err := r.admin(s, func(ctx context.Context, a admin) error { return r.createMany(ctx, a, step.create) }); err != nil {
			return err
		}
		took := time.Since(began)
		heap, routines, err := r.live(s)
		if err != nil {
			return err
		}
		running, err := s.memory()
		if err != nil {
			return err
		}
		s.stop()
		ready, err := s.start(r.ctx)
		if err != nil {
			return err
		}
		rss, err := r.memoryAtRest(s)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d idle %s", r.queues, step.what)
		r.report.info(name+", created", float64(r.queues)/took.Seconds(), "/s", fmt.Sprintf("RSS after it %.0f MiB", running/(1<<20)))
		r.report.atMost(name+", live heap each, before the restart", (heap-emptyHeap)/float64(r.queues)/1024, 4, "KiB")
		r.report.atMost(name+", goroutines each", (routines-emptyRoutines)/float64(r.queues), 0.01, "")
		r.report.atMost(name+", RSS each, after the restart", (rss-empty)/float64(r.queues)/1024, 4, "KiB")
		r.report.atMost(name+", restart to ready", ready.Seconds(), 5, "s")
	}
	return nil
}

func idleQueue(i int) string { return fmt.Sprintf("/idle/queue%05d", i) }

// createMany calls create for every queue, several at a time.
func (r *rig) createMany(ctx context.Context, a admin, create func(context.Context, admin, int) error) error {
	const workers = 32
	g, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		g.Go(func() error {
			for i := w; i < r.queues; i += workers {
				if err := create(ctx, a, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *rig) memoryAtRest(s *server) (float64, error) {
	select {
	case <-time.After(settle):
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
	return s.memory()
}

// live is what a garbage collection leaves, in bytes, and how many goroutines there are.
func (r *rig) live(s *server) (heap, goroutines float64, err error) {
	if _, err := s.get(r.ctx, "/debug/pprof/heap?gc=1"); err != nil {
		return 0, 0, err
	}
	m, err := s.metrics(r.ctx)
	return m["go_memstats_heap_alloc_bytes"], m["go_goroutines"], err
}

func (r *rig) admin(s *server, do func(context.Context, admin) error) error {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c.Admin())
}
