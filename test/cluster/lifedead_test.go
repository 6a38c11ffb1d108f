package cluster

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/outputhost"
)

// TestShowMessage_DeadLetterThatWasTaken asks for dead letters that operations took, by the receipts that they had
// there, and where they came from: each says which one it was, and what it did.
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
		origin := func(body string) client.MessageState {
			t.Helper()
			_, groups := w.life(client.Receipt{ID: letters[body].ID, Receipt: letters[body].Origin})
			return groups["g"]
		}
		merged, purged := selected(merge, "000002"), selected(purge, "000003")
		sleep(5 * time.Second)
		says("one that was merged", dead("000002"), "merged", merged)
		says("one that was purged", dead("000003"), "purged", purged)
		if d := dead("000001"); d != "" {
			t.Errorf("of one that is there it says %q", d)
		}
		says("where the merged one came from", origin("000002").Detail, letters["000002"].Receipt.String(), "merged", merged)
		says("where the purged one came from", origin("000003").Detail, letters["000003"].Receipt.String(), "purged", purged)
		if s := origin("000001"); s.State != "dead" || s.Detail != "" {
			t.Errorf("where one came from that is there, it stands at %+v", s)
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

// TestShowMessage_FindingALetterIsBounded has more dead letters than one call looks through: what is said of a message
// that was acked says so, and who looks for one by its id goes on page by page.
func TestShowMessage_FindingALetterIsBounded(t *testing.T) {
	bubble(t, Options{Output: func(c *outputhost.Config) { c.SearchBytes = 32 << 10 }}, func(w *world) {
		const n = 40
		large := strings.Repeat("y", 900)
		w.group("g", nil)
		at := w.receipts("x")[0]
		con := w.consumer("g", client.Prefetch(4))
		w.ok(w.next(con, "x", 1).Ack())
		var ids []client.MessageID
		for range n {
			w.publish(large)
			d := w.take(con, time.Minute)
			ids = append(ids, d.ID)
			w.ok(d.Reject("bad"))
		}
		w.eventually("all are dead letters", time.Minute, func() bool { return w.letters("g") == n })
		if _, groups := w.life(at); groups["g"].State != "settled" || !strings.Contains(groups["g"].Detail, "not among the first") {
			t.Errorf("its life: %+v", groups["g"])
		}
		last := ids[n-1].String()
		if d, err := w.Client.Admin().GetDeadLetter(w.t.Context(), queue, "g", last); err != nil || d.ID != ids[n-1] {
			t.Errorf("by the client: %s, %v", d.ID, err)
		}
		for _, verb := range []string{"list", "show"} {
			if out := w.columba("dlq", verb, queue, "g", "--id", last, "-o", "json"); !strings.Contains(out, last) || strings.Contains(out, ids[0].String()) {
				t.Errorf("dlq %s by id: %.300s", verb, out)
			}
		}
		peers := w.peers()
		defer peers.Close()
		ask := func(req *pb.ListDeadLettersRequest) *pb.ListDeadLettersResponse {
			req.Queue, req.Group = queue, "g"
			resp, err := peers.Output(w.hosts[Output].addr).ListDeadLetters(w.t.Context(), connect.NewRequest(req))
			w.ok(err)
			return resp.Msg
		}
		page := ask(&pb.ListDeadLettersRequest{Id: last})
		if page.Next == "" || len(page.DeadLetters) > 0 || page.Scanned == 0 || page.Scanned >= n {
			t.Errorf("the first page looks at %d, finds %d, next %q", page.Scanned, len(page.DeadLetters), page.Next)
		}
		if page = ask(&pb.ListDeadLettersRequest{Id: last, After: page.Next}); page.Next != "" || len(page.DeadLetters) != 1 {
			t.Fatalf("the second page looks at %d, finds %d, next %q", page.Scanned, len(page.DeadLetters), page.Next)
		}
		w.close(con)
	})
}
