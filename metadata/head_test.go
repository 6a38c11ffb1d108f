package metadata_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func headAfter(old metadata.HeadRecord) metadata.HeadRecord {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return metadata.HeadRecord{
		Queue: old.Queue, Changed: now, Attempt: core.NewID(now),
		Extent: core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: old.Queue, Chain: old.Extent.Chain + 1},
	}
}

func TestMoveHead(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	none := metadata.HeadRecord{Queue: core.QueueID{ID: core.NewID(time.Now())}}
	move := func(old, next metadata.HeadRecord, code core.Code) {
		t.Helper()
		if err := metadata.MoveHead(ctx, s, old, next); core.CodeOf(err) != code {
			t.Fatalf("from %d to %d: %v, want code %q", old.Extent.Chain, next.Extent.Chain, err, code)
		}
	}
	first := headAfter(none)
	second := headAfter(first)
	move(none, second, core.CodeBadArgument)
	move(none, first, "")
	move(none, headAfter(none), core.CodeConflict)
	move(first, second, "")
	move(first, second, "") // it was this move
	move(first, headAfter(first), core.CodeConflict)
	got, err := metadata.ReadHead(ctx, s, none.Queue, metadata.Serial)
	if err != nil || !got.Extent.Equal(second.Extent) || got.Attempt != second.Attempt {
		t.Errorf("head %+v, %v; want %+v", got, err, second)
	}
}

// lossy loses the answers of changes, done or not.
type lossy struct {
	metadata.Store
	mu   sync.Mutex
	lose int  // so many answers
	done bool // although it was done
}

func (l *lossy) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, v []byte, ttl time.Duration) error {
	l.mu.Lock()
	lose := l.lose > 0
	l.lose--
	l.mu.Unlock()
	switch {
	case !lose:
		return l.Store.Update(ctx, t, k, old, v, ttl)
	case l.done:
		if err := l.Store.Update(ctx, t, k, old, v, ttl); err != nil {
			return err
		}
	}
	return core.Errorf(core.CodeUnknown, "the answer is lost")
}

func TestMoveHead_LostAnswer(t *testing.T) {
	for _, done := range []bool{true, false} {
		s := &lossy{Store: memory.New(), lose: 1, done: done}
		none := metadata.HeadRecord{Queue: core.QueueID{ID: core.NewID(time.Now())}}
		first := headAfter(none)
		if err := metadata.MoveHead(t.Context(), s, none, first); err != nil {
			t.Fatal(err)
		}
		second := headAfter(first)
		err := metadata.MoveHead(t.Context(), s, first, second)
		got, rerr := metadata.ReadHead(t.Context(), s, none.Queue, metadata.Serial)
		if err != nil || rerr != nil || got.Attempt != second.Attempt {
			t.Errorf("done %t: %v; head %+v, %v", done, err, got, rerr)
		}
	}
}
