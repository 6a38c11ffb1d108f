package process

import (
	"bytes"
	"sync"
)

// Buffer takes what a process writes. Safe for concurrent use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Tail is the last n bytes.
func (b *Buffer) Tail(n int) string {
	s := b.String()
	return s[max(0, len(s)-n):]
}
