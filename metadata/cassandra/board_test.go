package cassandra

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// board is a session that several stores share. Transactions are applied, and notes are kept by their writers.
type board struct {
	mu     sync.Mutex
	notes  map[string]int64
	reads  int
	writes int
	broken bool          // notes are not written
	slow   time.Duration // that long takes the write of a note
	swaps  func() (bool, state, error)
}

func (b *board) write(ctx context.Context, _ gocql.Consistency, statements []statement) (bool, error) {
	if !strings.Contains(statements[0].text, noteTable) {
		return false, nil
	}
	select {
	case <-time.After(b.slow):
	case <-ctx.Done():
		return true, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes++
	if b.broken {
		return false, gocql.ErrNoConnections
	}
	if b.notes == nil {
		b.notes = map[string]int64{}
	}
	args := statements[0].args
	b.notes[string(args[2].([]byte))] = args[3].(int64)
	return false, nil
}

func (b *board) swap(context.Context, statement) (bool, state, error) {
	if b.swaps != nil {
		return b.swaps()
	}
	return true, state{}, nil
}

func (b *board) read(_ context.Context, _ gocql.Consistency, _ int, s statement, each func(gocql.Scanner) (bool, error)) error {
	if !strings.Contains(s.text, noteTable) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	for writer, at := range b.notes {
		if _, err := each(note{writer, at}); err != nil {
			return err
		}
	}
	return nil
}

func (b *board) page(context.Context, gocql.Consistency, int, []byte, statement, func(gocql.Scanner) error) ([]byte, error) {
	return nil, nil
}

func (b *board) close() {}

func (b *board) readsUntil(d time.Duration) int {
	b.mu.Lock()
	before := b.reads
	b.mu.Unlock()
	<-time.After(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads - before
}

// note is a row of notes.
type note struct {
	writer string
	at     int64
}

func (n note) Next() bool { return false }
func (n note) Err() error { return nil }
func (n note) Scan(to ...any) error {
	*to[0].(*[]byte), *to[1].(*int64) = []byte(n.writer), n.at
	return nil
}

func onBoard(b *board) *Store {
	return newStore(b, Config{Keyspace: "k", Poll: 2 * time.Second, Log: slog.New(slog.DiscardHandler)})
}
