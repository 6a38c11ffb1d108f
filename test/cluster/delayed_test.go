package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestDelayed_AllSources lists messages that wait for their time: published for later, sent back for a short and for a
// long time, and kept by the group's delay; page by page, each once. The depth counts each by its source, and the life
// of each says that it is delayed.
func TestDelayed_AllSources(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", patient)
		w.group("slow", func(g *core.GroupSpec) { g.Delay = time.Hour })
		began := time.Now()
		at := w.receipts("short", "long")
		con, slow := w.consumer("g"), w.consumer("slow")
		w.ok(w.next(con, "short", 1).Nack(client.After(20*time.Second), client.Reason("busy")))
		w.ok(w.next(con, "long", 1).Nack(client.After(time.Hour), client.Reason("busy")))
		w.publishLater(1, func() {}, 2*time.Hour)
		w.eventually("the long one is in the retry queue", 5*time.Second, func() bool { return len(w.parked("g")) == 1 })

		listed := func(group string) (out []string) {
			t.Helper()
			for m, err := range w.Client.Admin().Delayed(w.t.Context(), queue, group) {
				w.ok(err)
				out = append(out, fmt.Sprintf("%s %d %s %s", m.Source, m.Attempts, m.Due.Sub(began).Round(time.Minute/2), m.Error))
				if m.Source == "publish" && group == "" {
					at = append(at, client.Receipt{Receipt: m.Receipt, ID: m.ID})
				}
				if len(m.Message.Body) > 0 || m.ID.IsZero() {
					t.Errorf("listed: %+v", m)
				}
			}
			slices.Sort(out)
			return out
		}
		want := func(group string, lines ...string) {
			t.Helper()
			if got := listed(group); !slices.Equal(got, lines) {
				t.Errorf("delayed of group %q are\n%s\nwant\n%s", group, strings.Join(got, "\n"), strings.Join(lines, "\n"))
			}
		}
		want("", "publish 0 2h0m0s ")
		want("g", "publish 0 2h0m0s ", "retry 1 1h0m0s busy", "retry 1 30s busy")
		want("slow", "group 0 1h0m0s ", "group 0 1h0m0s ", "publish 0 2h0m0s ")
		if d := w.depth("g"); d.Delayed != 3 || d.DelayedPublish != 1 || d.DelayedRetry != 2 || d.DelayedGroup != 0 {
			t.Errorf("depth of g: %+v", d)
		}
		if d := w.depth("slow"); d.Delayed != 3 || d.DelayedPublish != 1 || d.DelayedRetry != 0 || d.DelayedGroup != 2 {
			t.Errorf("depth of slow: %+v", d)
		}
		for _, r := range at {
			_, groups := w.life(r)
			for name, s := range groups {
				if s.State != "delayed" || !s.Until.After(time.Now()) {
					t.Errorf("message %s stands in group %s at %+v", r.Receipt, name, s)
				}
			}
		}
		w.close(con)
		w.close(slow)
	})
}
