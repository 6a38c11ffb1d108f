package metadata

import (
	"context"
	"sync"

	"github.com/columbamq/columba/core"
)

// Notifier tells the watches of a store that a partition changed. The zero Notifier is ready; safe for concurrent use.
type Notifier struct {
	mu      sync.Mutex
	watches map[place]map[chan struct{}]struct{}
}

type place struct{ table, partition string }

// Notify wakes the watches of a partition; it never blocks. Wake-ups that a watch has not seen yet are folded.
func (n *Notifier) Notify(t Table, partition string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for wake := range n.watches[place{t.Name, partition}] {
		select { // never blocks: see default
		case wake <- struct{}{}:
		default:
		}
	}
}

// Watch is Store.Watch over this notifier: it ends with ctx, or with CodeUnavailable when closed is closed.
func (n *Notifier) Watch(ctx context.Context, closed <-chan struct{}, t Table, partition string, changed func()) error {
	wake := n.add(place{t.Name, partition})
	defer n.drop(place{t.Name, partition}, wake)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return core.Errorf(core.CodeUnavailable, "metadata store is closed")
		case <-wake:
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		changed()
	}
}

func (n *Notifier) add(p place) chan struct{} {
	wake := make(chan struct{}, 1)
	wake <- struct{}{} // the call at the start
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches == nil {
		n.watches = map[place]map[chan struct{}]struct{}{}
	}
	if n.watches[p] == nil {
		n.watches[p] = map[chan struct{}]struct{}{}
	}
	n.watches[p][wake] = struct{}{}
	return wake
}

func (n *Notifier) drop(p place, wake chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.watches[p], wake)
	if len(n.watches[p]) == 0 {
		delete(n.watches, p)
	}
}
