package outputhost

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// away is metadata that cannot be written to for a while.
type away struct {
	metadata.Store
	is atomic.Bool
}

func (a *away) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if a.is.Load() {
		return core.Errorf(core.CodeUnavailable, "away")
	}
	return a.Store.PutAll(ctx, t, rows, c)
}

// TestSaver_FailuresAreLoggedNowAndThen: a busy group is tried ten times a second while the metadata are away, for a
// minute, twice.
func TestSaver_FailuresAreLoggedNowAndThen(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 6)
	var log strings.Builder
	b.log = slog.New(slog.NewTextHandler(&log, nil))
	meta := &away{Store: b.meta}
	b.deps.Meta = meta
	now := time.Unix(1000, 0)
	b.deps.Now = func() time.Time { return now }
	for seq := range core.Seq(2) {
		log.Reset()
		meta.is.Store(true)
		s.rules.Ack(seq+1, 1, 1, now, nil)
		for range 600 {
			b.saver.note(g, saveNow)
			b.saver.save(t.Context(), false)
			now = now.Add(100 * time.Millisecond)
		}
		if n := strings.Count(log.String(), "checkpoints are not saved"); n != 6 {
			t.Errorf("%d warnings in a minute, want one at once and then every ten seconds:\n%s", n, log.String())
		}
		meta.is.Store(false)
		for range 2 {
			b.saver.note(g, saveNow)
			b.saver.save(t.Context(), false)
		}
		if n := strings.Count(log.String(), "saved again"); n != 1 {
			t.Errorf("that it is over is said %d times", n)
		}
	}
}

// TestSaver_TellsWhatIsUnsaved: from a change until a checkpoint with it is durable, a share counts as unsaved.
func TestSaver_TellsWhatIsUnsaved(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 6)
	meta := &away{Store: b.meta}
	b.deps.Meta = meta
	now := time.Unix(1000, 0)
	b.deps.Now = func() time.Time { return now }
	check := func(when string, want int) {
		t.Helper()
		g.mu.Lock()
		defer g.mu.Unlock()
		if got := g.unsavedSharesLocked(); got != want {
			t.Errorf("%s: %d shares are unsaved, want %d", when, got, want)
		}
	}
	save := func() {
		b.saver.note(g, saveNow)
		b.saver.save(t.Context(), false)
	}
	save()
	check("at rest", 0)
	s.rules.Ack(1, 1, 1, now, nil)
	check("after an ack", 1)
	meta.is.Store(true)
	save()
	check("after a checkpoint that failed", 1)
	meta.is.Store(false)
	save()
	check("after one that is durable", 0)
}
