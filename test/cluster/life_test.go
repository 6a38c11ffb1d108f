package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// shownLife is what `columba show message -o json` prints.
type shownLife struct {
	Receipt, Queue, Stored, ID, Payload string
	Stores                              []string
	Bytes                               int
	Groups                              []struct {
		Group, State, Consumer string
		Attempts               int
		LastError              string `json:"last_error"`
		DeadLetter             string `json:"dead_letter"`
	}
}

// life asks for the life of a message by the client and by the command, which have to agree; what it answers is by
// group.
func (w *world) life(r client.Receipt) (client.MessageInfo, map[string]client.MessageState) {
	w.t.Helper()
	m, err := w.Client.Admin().GetMessage(w.t.Context(), r.Receipt)
	w.ok(err)
	var shown shownLife
	out := w.columba("show", "message", r.Receipt.String(), "-o", "json")
	w.ok(json.Unmarshal([]byte(out), &shown))
	if shown.Receipt != r.Receipt.String() || shown.Queue != m.Queue || shown.Stored != m.Stored || !slices.Equal(shown.Stores, m.Stores) || len(shown.Groups) != len(m.Groups) {
		w.t.Errorf("the client says %+v, the command %+v", m, shown)
	}
	if m.Message != nil && (m.Message.ID != r.ID || shown.ID != r.ID.String() || shown.Payload != string(m.Message.Body) || shown.Bytes != len(m.Message.Body)) {
		w.t.Errorf("the message is %+v, by the command %+v, want %s", m.Message, shown, r.ID)
	}
	groups := make(map[string]client.MessageState)
	for i, g := range m.Groups {
		groups[g.Group] = g
		if s := shown.Groups[i]; s.Group != g.Group || s.State != g.State || s.Attempts != g.Attempts || s.LastError != g.LastError {
			w.t.Errorf("it stands at %+v, the command says %+v", g, s)
		}
	}
	return m, groups
}

// TestShowMessage_ItsLife follows messages through everything that a group can do to them.
func TestShowMessage_ItsLife(t *testing.T) {
	bubble(t, Options{Stores: 3, Outputs: 2}, func(w *world) {
		w.group("work", func(g *core.GroupSpec) { g.LockTimeout = time.Minute })
		w.group("idle", nil)
		r := w.receipts("acked", "nacked", "rejected", "held")
		published := time.Now()
		sleep(5 * time.Second)
		w.group("late", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		m, groups := w.life(r[0])
		if m.Stored != "committed" || len(m.Stores) != 3 || m.Message == nil || string(m.Message.Body) != "acked" || m.Enqueued.After(published) {
			t.Errorf("it is %+v", m)
		}
		for group, want := range map[string]string{"work": "unread", "idle": "unread", "late": "before_start"} {
			if got := groups[group].State; got != want {
				t.Errorf("for group %s it is %q, want %q", group, got, want)
			}
		}
		con := w.consumer("work", client.Prefetch(1))
		w.ok(w.next(con, "acked", 1).Ack())
		w.ok(w.next(con, "nacked", 1).Nack(client.After(time.Hour), client.Reason("later")))
		w.ok(w.next(con, "rejected", 1).Reject("bad"))
		w.next(con, "held", 1)
		w.ok(con.Flush(w.t.Context()))
		sleep(3 * time.Second)
		states := func(want ...string) []client.MessageState {
			t.Helper()
			var all []client.MessageState
			for i, state := range want {
				_, groups := w.life(r[i])
				if got := groups["work"].State; got != state {
					t.Errorf("message %d is %q, want %q", i+1, got, state)
				}
				all = append(all, groups["work"])
			}
			return all
		}
		all := states("settled", "delayed", "dead", "in_flight")
		if s := all[1]; s.Attempts != 1 || s.LastError != "later" || time.Until(s.Until) < 59*time.Minute || s.RetryReceipt.Seq != 1 {
			t.Errorf("what waits stands at %+v", s)
		}
		if s := all[2]; s.Attempts != 1 || s.LastError != "bad" || s.LastFailure != "rejected" || s.DeadLetter.Seq != 1 {
			t.Errorf("what was rejected stands at %+v", s)
		}
		if s := all[3]; s.Attempts != 1 || s.Holder == nil || s.Holder.Consumer != "test" || time.Since(s.Holder.Since) > 5*time.Second || s.Owner == "" {
			t.Errorf("what is held stands at %+v, %+v", s, s.Holder)
		}
		w.close(con)
		sleep(2 * time.Second)
		w.Crash(OutputOf(0))
		w.Crash(OutputOf(1)) // nobody can read it now, nor look for dead letters; the checkpoints still tell
		states("settled", "settled", "settled", "in_flight")
		if m, _ := w.life(r[0]); m.Stored != "committed" || m.Message != nil || m.Detail == "" {
			t.Errorf("without an output host it is %+v", m)
		}
		if out := w.columba("show", "message", r[0].Receipt.String()); !strings.Contains(out, "LAST_FAILURE") || !strings.Contains(out, "stored") {
			t.Errorf("the command shows\n%s", out)
		}
	})
}

// TestShowMessage_GoneOrNeverThere asks for what retention took, and for what there never was.
func TestShowMessage_GoneOrNeverThere(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.keep(5*time.Minute, time.Hour)
		w.group("g", nil)
		con := w.consumer("g")
		r := w.receipts("a")[0]
		w.ok(w.next(con, "a", 1).Ack())
		w.eventually("it is removed", 20*time.Minute, func() bool { return w.replicas() == 0 })
		if m, groups := w.life(r); m.Stored != "gone" || m.Message != nil || groups["g"].State != "settled" {
			t.Errorf("after retention it is %+v", m)
		}
		beyond := core.Receipt{Extent: r.Extent, Seq: 2}
		none := core.Receipt{Extent: core.ExtentID{ID: core.NewID(time.Now())}, Seq: 1}
		for _, at := range []core.Receipt{beyond, none} {
			if _, err := w.Client.Admin().GetMessage(w.t.Context(), at); core.CodeOf(err) != core.CodeNotFound {
				t.Errorf("%s: %v, want %s", at, err, core.CodeNotFound)
			}
			if _, _, code := w.command("show", "message", at.String()); code != 3 {
				t.Errorf("%s: exit code %d, want 3", at, code)
			}
		}
		w.close(con)
	})
}
