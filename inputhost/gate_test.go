package inputhost

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
)

// A stream that waits for room still has to keep the deadlines of publishers.
func TestGate_NobodyWaitsForRoomWithoutEnd(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.send()
		p.flush()
		q, e := r.host.list()[0], r.open(path)[0]
		for range atOnce {
			for _, g := range []gate{r.host.openings, r.host.sealings} {
				leave, err := g.enter(r.t.Context(), true)
				if err != nil {
					t.Fatal(err)
				}
				defer leave()
			}
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
		defer cancel()
		for name, call := range map[string]func() error{
			"open":  func() error { _, _, err := q.openExtent(ctx, true); return err },
			"seal":  func() error { _, _, err := r.host.seal(ctx, e, writer.End{Reason: "test", Owing: true}); return err },
			"quiet": func() error { _, _, err := r.host.seal(ctx, e, writer.End{Reason: "test"}); return err },
		} {
			began := time.Now()
			err := call()
			if took := time.Since(began); core.CodeOf(err) != core.CodeUnavailable || took > 2*callTimeout {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		}
	})
}
