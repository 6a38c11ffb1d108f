package clienttest

import (
	"bytes"
	"sync"
)

// maxJournal bounds what is kept of the broker's log.
const maxJournal = 256 << 10

// journal keeps the end of what the broker logs, for tests that fail.
type journal struct {
	mu struct {
		sync.Mutex
		buf bytes.Buffer
	}
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.buf.Len() > maxJournal {
		j.mu.buf.Next(maxJournal / 2)
	}
	return j.mu.buf.Write(b)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.buf.String()
}
