package cluster

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/outputhost"
)

// TestPark_FindingOneIsBounded parks more than one call looks through: what is said of a message that was done with
// says so, a listing goes on page by page, and what is known to be due at a time is looked up.
func TestPark_FindingOneIsBounded(t *testing.T) {
	bubble(t, Options{Output: func(c *outputhost.Config) { c.SearchBytes = 32 << 10 }}, func(w *world) {
		const n = 40
		w.group("g", patient)
		at := w.receipts("x")[0]
		con := w.consumer("g", client.Prefetch(4))
		w.ok(w.next(con, "x", 1).Ack())
		large := strings.Repeat("y", 900)
		ids := make([]client.MessageID, n)
		for i := range n {
			w.publish(large)
			d := w.take(con, time.Minute)
			ids[i] = d.ID
			w.ok(d.Nack(client.After(time.Hour)))
		}
		w.eventually("all are parked", time.Minute, func() bool { return w.places("g") == "0 0 0 40 0" })
		sleep(10 * time.Second) // and nothing is on its way
		if _, groups := w.life(at); groups["g"].State != "settled" || !strings.Contains(groups["g"].Detail, "not among the first") {
			t.Errorf("its life: %+v", groups["g"])
		}
		last := ids[n-1].String()
		if out := w.columba("list", "delayed", queue, "g", "--id", last); !strings.Contains(out, last) || strings.Contains(out, ids[0].String()) {
			t.Errorf("listed by id: %s", out)
		}
		peers := w.peers()
		defer peers.Close()
		ask := func(req *pb.ListRetryQueueRequest) *pb.ListRetryQueueResponse {
			req.Queue, req.Group, req.Id = queue, "g", last
			resp, err := peers.Output(w.hosts[Output].addr).ListRetryQueue(w.t.Context(), connect.NewRequest(req))
			w.ok(err)
			return resp.Msg
		}
		page := ask(&pb.ListRetryQueueRequest{})
		if page.Next == "" || len(page.Messages) > 0 || page.Looked == 0 || page.Looked >= n {
			t.Errorf("the first page looks at %d, finds %d, next %q", page.Looked, len(page.Messages), page.Next)
		}
		page = ask(&pb.ListRetryQueueRequest{After: page.Next})
		if page.Next != "" || len(page.Messages) != 1 {
			t.Fatalf("the second page looks at %d, finds %d, next %q", page.Looked, len(page.Messages), page.Next)
		}
		found := page.Messages[0]
		if page = ask(&pb.ListRetryQueueRequest{Until: found.Until}); page.Looked > 2 || len(page.Messages) != 1 || page.Messages[0].Receipt != found.Receipt {
			t.Errorf("by its time: %d looked at, %v", page.Looked, page.Messages)
		}
		w.close(con)
	})
}
