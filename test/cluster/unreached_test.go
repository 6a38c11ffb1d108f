package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestCut_CommandsSayWhatTheyDoNotReach: a start at latest, a seek and a purge on the majority's side of a cut do not
// concern what is published on the other side. They name its controller.
func TestCut_CommandsSayWhatTheyDoNotReach(t *testing.T) {
	halved(t, 1, func(h *halves) {
		h.group("old", nil)
		sleep(10 * time.Second)
		o, err := h.Client.Admin().PurgeQueue(h.t.Context(), queue)
		h.ok(err)
		if o = h.ended(o.ID); o.State != "done" || o.Error != "" {
			t.Errorf("a purge without a cut is %s: %q", o.State, o.Error)
		}
		heal := h.divide(h.farSide, []string{farPort}, 3*time.Second)
		sleep(time.Minute)
		h.publishOn(h.far, queue, bodiesOf("far", 10))
		says := func(what, note string, want bool) {
			t.Helper()
			if named := strings.Contains(note, "controllers ["+string(ControllerOf(2))+"] "); named != want {
				t.Errorf("%s says %q", what, note)
			}
		}
		create := func(name string, mode core.StartMode) string {
			g, err := h.Client.Admin().CreateGroup(h.t.Context(), core.GroupSpec{Queue: queue, Name: name, Start: core.Start{Mode: mode}})
			h.ok(err)
			return g.Note
		}
		seek := func(mode core.StartMode) string {
			g, err := h.Client.Admin().Seek(h.t.Context(), queue, "old", core.Start{Mode: mode})
			h.ok(err)
			return g.Note
		}
		says("a start at latest", create("latest", core.StartLatest), true)
		says("a start at earliest", create("earliest", core.StartEarliest), false)
		says("a seek to latest", seek(core.StartLatest), true)
		says("a seek to earliest", seek(core.StartEarliest), false)
		o, err = h.Client.Admin().PurgeQueue(h.t.Context(), queue)
		h.ok(err)
		if o = h.ended(o.ID); o.State != "done" {
			t.Errorf("the purge is %s", o.State)
		}
		says("a purge", o.Error, true)
		heal()
		sleep(30 * time.Second)
		says("a seek after the cut", seek(core.StartLatest), false)
	})
}

// ended waits for the end of an operation.
func (h *halves) ended(id core.ID) client.Operation {
	h.t.Helper()
	for range 60 {
		o, err := h.Client.Admin().GetOperation(h.t.Context(), id)
		if h.ok(err); o.Ended() {
			return o
		}
		sleep(time.Second)
	}
	h.t.Fatalf("operation %s does not end", id)
	return client.Operation{}
}
