package peer

import "sync"

// maxKept bounds the clients of one kind; hosts that move leave theirs behind.
const maxKept = 1024

// kept are clients by address: one costs more to make than a call. Safe for concurrent use.
type kept[T any] struct {
	mu struct {
		sync.Mutex
		byAddr map[string]T
	}
}

// at is the client for addr, made if it is not there.
func (k *kept[T]) at(addr string, make func() T) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, ok := k.mu.byAddr[addr]; ok {
		return c
	}
	if len(k.mu.byAddr) >= maxKept || k.mu.byAddr == nil {
		k.mu.byAddr = map[string]T{}
	}
	c := make()
	k.mu.byAddr[addr] = c
	return c
}
