package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestShowMessage_DeadLetterThatWasTaken asks for dead letters that operations took, by the receipts that they had there, and where they came from: each
// says which one it was, and what it did.
func TestShowMessage_DeadLetterThatWasTaken(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		admin := w.Client.Admin()
		w.buried("g", numbers(1, 5)...)
		letters := make(map[string]client.DeadLetter)
		for d, err := range admin.DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			letters[string(d.Message.Body)] = d
		}
		says := func(what, detail string, want ...string) {
			t.Helper()
			for _, part := range want {
				if !strings.Contains(detail, part) {
					t.Errorf("of %s it says %q, want %q in it", what, detail, part)
				}
			}
		}
		dead := func(body string) string {
			t.Helper()
			m, _ := w.life(client.Receipt{ID: letters[body].ID, Receipt: letters[body].Receipt})
			return m.Detail
		}
		selected := func(start func(core.Selection) (client.Operation, error), body string) string {
			t.Helper()
			o, err := start(core.Selection{IDs: []core.MessageID{letters[body].ID}})
			w.ok(err)
			if o = w.ended(o.ID); o.State != "done" || o.Done != 1 {
				t.Fatalf("the operation is %+v", o)
			}
			return o.ID.String()
		}
		merge := func(s core.Selection) (client.Operation, error) {
			return admin.MergeSelected(w.t.Context(), queue, "g", s, 0)
		}
		purge := func(s core.Selection) (client.Operation, error) {
			return admin.PurgeSelected(w.t.Context(), queue, "g", s)
		}
		merged, purged := selected(merge, "000002"), selected(purge, "000003")
		sleep(5 * time.Second)
		says("one that was merged", dead("000002"), "merged", merged)
		says("one that was purged", dead("000003"), "purged", purged)
		if d := dead("000001"); d != "" {
			t.Errorf("of one that is there it says %q", d)
		}
		o, err := admin.MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		w.ended(o.ID)
		sleep(5 * time.Second)
		says("one of all that were merged", dead("000001"), "merged", o.ID.String())
		says("one that was merged before", dead("000002"), "merged", merged)
		says("one that was purged before", dead("000003"), "purged", purged)
	})
}
