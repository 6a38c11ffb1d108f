package inputhost

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
)

func testWriter() *writer.Writer {
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"}}
	return writer.New(e, writer.Limits{}, writer.Env{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Go: func(func(context.Context)) bool { return false },
		Ended: func(*writer.Writer, core.HostID, error) {},
	})
}

// TestOpenSet_Properties has extents and streams come and go. A stream keeps its home as long as that is open; the
// streams of the extents are counted right; an extent that comes gets its share.
func TestOpenSet_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o openSet
		streams := make(map[*publisher]struct{})
		var order []*publisher
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				before := len(o.slots)
				o.add(testWriter(), time.Now(), streams)
				if s := o.slots[before]; s.streams > len(streams)/o.lasting() {
					t.Fatalf("a new extent got %d of %d streams", s.streams, len(streams))
				}
			case 1:
				if len(o.slots) > 0 {
					o.drop(o.slots[rapid.IntRange(0, len(o.slots)-1).Draw(t, "dropped")].w)
				}
			case 2:
				if len(o.slots) > 0 {
					o.markReplace(o.slots[rapid.IntRange(0, len(o.slots)-1).Draw(t, "full")].w)
				}
			case 3:
				p := &publisher{}
				streams[p] = struct{}{}
				order = append(order, p)
			case 4:
				if len(order) > 0 {
					p := order[0]
					order = order[1:]
					delete(streams, p)
					o.leave(p)
				}
			case 5:
				for _, p := range order {
					was := p.home
					now := o.home(p)
					if was != nil && !was.gone && now != was {
						t.Fatal("a stream left a home that is open")
					}
					if (now == nil) != (len(o.slots) == 0) || now != nil && now.gone {
						t.Fatalf("home %v with %d open", now, len(o.slots))
					}
				}
			}
			counts := make(map[*slot]int)
			for p := range streams {
				if p.home != nil && !p.home.gone {
					counts[p.home]++
				}
			}
			for _, s := range o.slots {
				if counts[s] != s.streams {
					t.Fatalf("%d streams counted on an extent that has %d", s.streams, counts[s])
				}
			}
		}
	})
}

// A stream that left the queue is given an extent for what it has waiting, and is not counted there.
func TestOpenSet_LateChunksOfOneThatLeft(t *testing.T) {
	var o openSet
	p := &publisher{}
	o.add(testWriter(), time.Now(), nil)
	o.leave(p)
	if s := o.home(p); s == nil || s.streams != 0 || p.home != nil {
		t.Errorf("home %+v", s)
	}
}

func TestGate_UrgentGoesFirst(t *testing.T) {
	g := newGate(8)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 { // the quarter
		if _, err := g.enter(t.Context(), false); err != nil {
			t.Fatalf("call %d that nobody waits for: %v", i, err)
		}
	}
	if _, err := g.enter(ctx, false); err == nil {
		t.Error("a third one got in")
	}
	var leave func()
	for range 6 {
		var err error
		if leave, err = g.enter(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.enter(ctx, true); err == nil {
		t.Error("a ninth call got in")
	}
	leave()
	if _, err := g.enter(t.Context(), true); err != nil {
		t.Error(err)
	}
}
