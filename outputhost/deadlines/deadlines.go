// Package deadlines wakes the groups of a host when their next deadline has come: one goroutine serves all of them.
package deadlines

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Deadlines wakes its items when their time has come. Safe for concurrent use.
type Deadlines[T comparable] struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		heap  queue[T]
		index map[T]*deadline[T]
	}
}

type deadline[T comparable] struct {
	item  T
	at    time.Time
	place int
}

// New makes one without items.
func New[T comparable]() *Deadlines[T] {
	d := &Deadlines[T]{wake: make(chan struct{}, 1)}
	d.mu.index = make(map[T]*deadline[T])
	return d
}

// Set replaces the item's deadline; none when ok is false. One that stays as it is costs a look only.
func (d *Deadlines[T]) Set(item T, at time.Time, ok bool) {
	d.mu.Lock()
	old := d.mu.index[item]
	switch {
	case old == nil && !ok:
		d.mu.Unlock()
		return
	case !ok:
		heap.Remove(&d.mu.heap, old.place)
		delete(d.mu.index, item)
	case old == nil:
		old = &deadline[T]{item: item, at: at}
		heap.Push(&d.mu.heap, old)
		d.mu.index[item] = old
	case old.at.Equal(at):
		d.mu.Unlock()
		return
	default:
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

// due removes and returns the items whose time has come, and says how long until the next.
func (d *Deadlines[T]) due(now time.Time) (items []T, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.mu.heap) > 0 && !d.mu.heap[0].at.After(now) {
		e := heap.Pop(&d.mu.heap).(*deadline[T])
		delete(d.mu.index, e.item)
		items = append(items, e.item)
	}
	if len(d.mu.heap) == 0 {
		return items, time.Hour
	}
	return items, d.mu.heap[0].at.Sub(now)
}

// Run calls come for every item whose time has come, until ctx ends.
func (d *Deadlines[T]) Run(ctx context.Context, now func() time.Time, come func(T)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		items, next := d.due(now())
		for _, item := range items {
			come(item)
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

// queue is a heap by time.
type queue[T comparable] []*deadline[T]

func (q queue[T]) Len() int           { return len(q) }
func (q queue[T]) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}
func (q *queue[T]) Push(x any) {
	e := x.(*deadline[T])
	e.place = len(*q)
	*q = append(*q, e)
}
func (q *queue[T]) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
