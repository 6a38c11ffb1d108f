package node

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata/memory"
)

// gatedHolder is the holder of metadata that fail when failed says so, in a process that is alone.
func gatedHolder(t *testing.T, failed func() error) lifecycle.Part {
	t.Helper()
	self := membership.Host{ID: "a"}
	members, err := static.New(self)
	if err != nil {
		t.Fatal(err)
	}
	res := &resources{members: members, failed: failed}
	var all pages
	return all.add(namedRole{membership.RoleMetadata, newHolder(res, slog.New(slog.DiscardHandler))})
}

func TestHolder_EndsTheProcessWhenTheMetadataFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		w := gatedHolder(t, func() error {
			if broken.Load() {
				return core.Errorf(core.CodeNoSpace, "metadata in /data stopped: disk full; repair the disk and restart the server")
			}
			return nil
		})
		began := time.Now()
		err := lifecycle.Run(t.Context(), []lifecycle.Part{w}, lifecycle.Options{Ready: func() {
			time.AfterFunc(time.Minute, func() { broken.Store(true) })
		}})
		if core.CodeOf(err) != core.CodeNoSpace || !strings.Contains(err.Error(), "the process cannot go on: metadata in /data stopped") {
			t.Errorf("got %v (%s), want why the metadata failed", err, core.CodeOf(err))
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*watchEvery {
			t.Errorf("it ended after %s, want a minute", took)
		}
	})
}

func TestHolder_EndsQuietlyWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := gatedHolder(t, func() error { return nil })
		if err := lifecycle.Run(ctx, []lifecycle.Part{w}, lifecycle.Options{}); err != nil {
			t.Errorf("got %v, want nil", err)
		}
	})
}

// TestHolder_YieldsWhileTheClusterIsNew meets a host of an older cluster at once, and once more when the cluster is no
// longer new.
func TestHolder_YieldsWhileTheClusterIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := membership.Host{ID: "b", Roles: []string{membership.RoleMetadata}, Address: "b:1", Run: core.RunID{ID: core.NewID(someTime)}}
		members, err := static.New(membership.Host{ID: "a", Run: core.RunID{ID: core.NewID(someTime.Add(time.Second))}})
		if err != nil {
			t.Fatal(err)
		}
		store := memory.New()
		defer store.Close()
		h := &holder{
			service: newService(store), members: members, began: time.Now(), joined: func() bool { return false }, log: slog.New(slog.DiscardHandler),
			foreign: func() []membership.Host { return []membership.Host{other} },
		}
		wantCode(t, "a new cluster", h.yield(t.Context()), core.CodeConflict, "host b at b:1")
		time.Sleep(newFor + time.Second)
		if err := h.yield(t.Context()); err != nil {
			t.Errorf("after %s: %v", newFor, err)
		}
	})
}
