package cluster

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/metadata"
)

// peers are clients for the hosts, as one of them has.
func (w *world) peers() *peer.Pool {
	return peer.NewPool(peer.Config{NetDial: w.net.dialFrom("test")})
}

// TestCluster_OldListBringsNoShareBack sends the output host a list of shares from before it finished one.
func TestCluster_OldListBringsNoShareBack(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		p := w.peers()
		defer p.Close()
		run := w.hosts[Output].run
		old, err := p.Controller(w.hosts[Controller].addr).ListAssignments(w.t.Context(), connect.NewRequest(&pb.ListAssignmentsRequest{Owner: string(Output), Run: run.ID[:]}))
		w.ok(err)
		if len(old.Msg.Assignments) != 1 {
			t.Fatalf("%d shares, want one", len(old.Msg.Assignments))
		}
		time.Sleep(70 * time.Second) // idle: sealed, and so done
		old.Msg.Version += 1 << 60
		_, err = p.Output(w.hosts[Output].addr).Assign(w.t.Context(), connect.NewRequest(old.Msg))
		w.ok(err)
		if d := w.take(con, 10*time.Second); d != nil {
			t.Errorf("%s of a finished extent came again, as attempt %d", d.Body, d.Attempt)
		}
		w.close(con)
	})
}

// rows are how many there are of a table, in all partitions.
func (w *world) rows(t metadata.Table, partition string) int {
	w.t.Helper()
	rows, _, err := w.Meta.List(context.WithoutCancel(w.t.Context()), t, partition, "", 1000, metadata.One)
	w.ok(err)
	return len(rows)
}
