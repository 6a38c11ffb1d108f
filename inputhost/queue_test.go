package inputhost

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/wire"
)

// asker is a publisher that does something when it is asked whether it is still there.
type asker struct {
	asked    func()
	outcomes []writer.Outcome
}

func (a *asker) Gone() bool {
	a.asked()
	return false
}

func (a *asker) Answer(_ writer.Chunk, o writer.Outcome) { a.outcomes = append(a.outcomes, o) }

// TestQueue_RefusesWhatComesBackWhileItCloses drains the host between the moment a chunk is taken out of what waits and
// the moment its extent does not take it: the chunk was never sent, so it is refused. In a chain the extent may give
// back others, too.
func TestQueue_RefusesWhatComesBackWhileItCloses(t *testing.T) {
	meta := memory.New()
	members, err := static.New(membership.Host{ID: "in", Roles: []string{"inputhost"}, Address: "in:1", Run: core.RunID{ID: core.NewID(time.Now())}})
	if err != nil {
		t.Fatal(err)
	}
	peers := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler)})
	h, err := New(DefaultConfig(), Deps{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Meta: meta, Peers: peers, Members: members})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		peers.Close()
		meta.Close()
	})
	record := metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(time.Now())}, Spec: core.QueueSpec{Path: "/q", Status: core.StatusEnabled}}
	for name, givesBack := range map[string]int{"one chunk": 0, "and what the extent gives back": 2} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(h, record, metadata.Reading{Version: 1}, core.HorizonAt(0))
			w := writer.New(core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"}}, h.limits(q.kind()), q.env())
			w.Close("rolled") // it takes nothing more, but the queue does not know yet
			q.mu.open.add(w, time.Now(), nil)
			from := &asker{}
			chunk := func() writer.Chunk { return writer.Chunk{From: from, Count: 1, Arrived: time.Now()} }
			from.asked = func() {
				from.asked = func() {}
				for range givesBack {
					q.front([]writer.Chunk{chunk()})
				}
				q.beginClose()
			}
			q.again([]writer.Chunk{chunk(), chunk()})
			want := 2 + givesBack
			if len(from.outcomes) != want {
				t.Fatalf("%d of %d chunks were answered", len(from.outcomes), want)
			}
			for _, o := range from.outcomes {
				if o.Status != wire.AckRefused || o.Code != core.CodeDraining {
					t.Errorf("a chunk that was never sent was answered %+v, want a refusal: %s", o, core.CodeDraining)
				}
			}
		})
	}
}
