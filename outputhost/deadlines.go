package outputhost

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// deadlines wakes groups when a lock or a delay of theirs ends. One goroutine serves all groups.
type deadlines struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		heap  deadlineHeap
		index map[*group]*deadline
	}
}

type deadline struct {
	g     *group
	at    time.Time
	place int
}

func newDeadlines() *deadlines {
	d := &deadlines{wake: make(chan struct{}, 1)}
	d.mu.index = make(map[*group]*deadline)
	return d
}

// set replaces the group's deadline; none when ok is false.
func (d *deadlines) set(g *group, at time.Time, ok bool) {
	d.mu.Lock()
	old := d.mu.index[g]
	switch {
	case old == nil && !ok:
		d.mu.Unlock()
		return
	case !ok:
		heap.Remove(&d.mu.heap, old.place)
		delete(d.mu.index, g)
	case old == nil:
		old = &deadline{g: g, at: at}
		heap.Push(&d.mu.heap, old)
		d.mu.index[g] = old
	case !old.at.Equal(at):
		old.at = at
		heap.Fix(&d.mu.heap, old.place)
	}
	first := ok && old.place == 0
	d.mu.Unlock()
	if first {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// due removes and returns the groups whose time has come, and says how long until the next.
func (d *deadlines) due(now time.Time) (groups []*group, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.mu.heap) > 0 && !d.mu.heap[0].at.After(now) {
		e := heap.Pop(&d.mu.heap).(*deadline)
		delete(d.mu.index, e.g)
		groups = append(groups, e.g)
	}
	if len(d.mu.heap) == 0 {
		return groups, time.Hour
	}
	return groups, d.mu.heap[0].at.Sub(now)
}

func (d *deadlines) run(ctx context.Context, now func() time.Time) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		groups, next := d.due(now())
		for _, g := range groups {
			g.pump()
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.wake:
		}
	}
}

type deadlineHeap []*deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *deadlineHeap) Push(x any) {
	e := x.(*deadline)
	e.place = len(*h)
	*h = append(*h, e)
}
func (h *deadlineHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
