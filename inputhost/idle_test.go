package inputhost

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// goneMeta is metadata that nobody answers for while away.
type goneMeta struct {
	metadata.Store
	away *atomic.Bool
}

func (m goneMeta) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	if m.away.Load() {
		return nil, core.Errorf(core.CodeUnavailable, "nobody has the metadata")
	}
	return metadata.GetRows(ctx, m.Store, t, keys, c)
}

// TestQueue_IdleExtentsStayOpenWithoutTheMetadata, where nobody could open others, and end when the metadata are back.
func TestQueue_IdleExtentsStayOpenWithoutTheMetadata(t *testing.T) {
	var away atomic.Bool
	synctest.Test(t, func(t *testing.T) {
		r := &harness{t: t, over: func(s metadata.Store) metadata.Store { return goneMeta{s, &away} }}
		r.start(1, func(c *Config) { c.IdleAfter = 2 * time.Minute })
		defer r.stop()
		p := r.publisher("p", path)
		p.send()
		p.flush()
		r.all(1)
		open := r.open(path)
		away.Store(true)
		sleep(10 * time.Minute)
		if now := r.open(path); len(open) == 0 || len(now) != len(open) || now[0].ID != open[0].ID {
			t.Fatalf("without the metadata %v are open, want %v", now, open)
		}
		away.Store(false)
		sleep(time.Minute)
		if now := r.open(path); len(now) > 0 {
			t.Errorf("%v are still open", now)
		}
	})
}
