package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost"
)

// peers are clients for the hosts, as one of them has.
func (w *world) peers() *peer.Pool {
	return peer.NewPool(peer.Config{NetDial: w.net.attach("test").dial, Log: slog.New(slog.DiscardHandler)})
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
		controller := p.Controller(w.hosts[Controller].addr)
		named, err := controller.ListAssignments(w.t.Context(), connect.NewRequest(&pb.ListAssignmentsRequest{Owner: string(Output), Run: run.ID[:]}))
		w.ok(err)
		old, err := controller.GetAssignments(w.t.Context(), connect.NewRequest(&pb.GetAssignmentsRequest{Owner: string(Output), Run: run.ID[:], Known: named.Msg.Lists}))
		w.ok(err)
		if lists := old.Msg.Lists; len(lists) != 1 || len(lists[0].Assignments) != 1 {
			t.Fatalf("the lists %v, want one share", lists)
		}
		sleep(70 * time.Second) // idle: sealed, and so done
		old.Msg.Lists[0].Version.Counter += 1 << 60
		_, err = p.Output(w.hosts[Output].addr).Assign(w.t.Context(), connect.NewRequest(&pb.AssignRequest{Run: run.ID[:], Lists: old.Msg.Lists}))
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

// hints counts the hints of a kind.
func (w *world) hints(h metadata.Hint) (n int) {
	w.t.Helper()
	for _, err := range metadata.Hints(context.WithoutCancel(w.t.Context()), w.Meta, h, metadata.One) {
		w.ok(err)
		n++
	}
	return n
}

// saves counts the checkpoints' writes, and refuses them while it fails.
type saves struct {
	fail  atomic.Bool
	tried atomic.Int32
}

func (s *saves) gate(_ context.Context, op Op) error {
	if op.Name == "PutAll" && op.Table == metadata.Checkpoints.Name {
		s.tried.Add(1)
		if s.fail.Load() {
			return errInjected
		}
	}
	return nil
}

// TestCluster_StopSavesWhatWasSettled restarts the output host gracefully, again and again, under a consumer.
func TestCluster_StopSavesWhatWasSettled(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g", client.Prefetch(10))
		bodies := numbers(1, 300)
		w.publish(bodies...)
		got := make(map[string]int)
		for len(got) < len(bodies) {
			d := w.take(con, 2*time.Minute)
			if d == nil {
				break
			}
			got[string(d.Body)]++
			w.ok(d.Ack())
			w.ok(con.Flush(w.t.Context()))
			if len(got)%100 == 50 {
				sleep(10 * time.Millisecond) // the acks have arrived
				w.Restart(Output)
			}
		}
		w.all(got, bodies, false)
		twice := 0
		for _, n := range got {
			twice += n - 1
		}
		if twice > 3 { // what was on its way when the connection ended; not the 50 and more of the last second
			t.Errorf("%d messages came again after three graceful stops", twice)
		}
		w.close(con)
	})
}

// TestCluster_LockEndsWithoutConsumers lets the last attempt's lock run out with nobody there: the message is buried
// all the same.
func TestCluster_LockEndsWithoutConsumers(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 1; g.LockTimeout = 5 * time.Second })
		con := w.consumer("g")
		w.publish("a", "b")
		w.next(con, "a", 1)
		w.next(con, "b", 1)
		w.close(con)
		w.eventually("both are dead letters", 10*time.Second, func() bool { return w.letters("g") == 2 })
	})
}

// TestCluster_LockEndsWithoutConsumersAfterARestart is the same, with a restart between: the bytes have to be read
// again.
func TestCluster_LockEndsWithoutConsumersAfterARestart(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 1; g.LockTimeout = 5 * time.Second })
		con := w.consumer("g")
		w.publish("a")
		w.next(con, "a", 1)
		w.close(con)
		sleep(2 * time.Second)
		w.Restart(Output)
		w.eventually("it is a dead letter", 20*time.Second, func() bool { return w.letters("g") == 1 })
	})
}

// TestCluster_LockEndsAfterACrash: nobody knows whether the crash lost an ack. So the message comes again, though it
// had all its deliveries.
func TestCluster_LockEndsAfterACrash(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 1; g.LockTimeout = 5 * time.Second })
		con := w.consumer("g")
		w.publish("a")
		w.next(con, "a", 1)
		w.close(con)
		sleep(2 * time.Second)
		w.Crash(w.All()...)
		w.Up(w.All()...)
		sleep(20 * time.Second)
		con = w.consumer("g")
		w.ok(w.next(con, "a", 2).Ack())
		w.close(con)
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func (w *world) letters(group string) int {
	w.t.Helper()
	n := 0
	for _, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, group) {
		switch core.CodeOf(err) {
		case core.CodeNotFound: // none so far
			return 0
		case core.CodeIncomplete: // what was acknowledged a moment ago
			return n
		}
		w.ok(err)
		n++
	}
	return n
}

// TestCluster_ConsumersComeAndGoWhileItDelivers has them leave in the middle; what they gave back comes to others.
func TestCluster_ConsumersComeAndGoWhileItDelivers(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 10 * time.Second })
		bodies := numbers(1, 2000)
		w.publish(bodies...)
		got := make(map[string]int)
		for range 10 {
			con := w.consumer("g", client.Prefetch(200))
			for range 50 {
				if d := w.take(con, 20*time.Second); d != nil {
					got[string(d.Body)]++
					w.ok(d.Ack())
				}
			}
			w.close(con)
		}
		con := w.consumer("g")
		for b, n := range w.collect(con, len(bodies)-len(got)) {
			got[b] += n
		}
		w.all(got, bodies, true)
		w.close(con)
	})
}

// TestCluster_PullsBesideConsumers lets unary pulls and a consumer compete.
func TestCluster_PullsBesideConsumers(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		p := w.peers()
		defer p.Close()
		pull := func(wait time.Duration) []*pb.PulledMessage {
			r, err := p.Output(w.hosts[Output].addr).Pull(w.t.Context(), connect.NewRequest(&pb.PullRequest{Queue: queue, Group: "g", MaxMessages: 10, Wait: durationpb.New(wait)}))
			w.ok(err)
			return r.Msg.Messages
		}
		began := time.Now()
		if m := pull(5 * time.Second); len(m) != 0 || time.Since(began) < 5*time.Second {
			t.Errorf("%d messages after %s, want none after 5 s", len(m), time.Since(began))
		}
		con := w.consumer("g", client.Prefetch(1))
		bodies := numbers(1, 10)
		w.publish(bodies...)
		got := make(map[string]int)
		d := w.take(con, 10*time.Second)
		if d == nil {
			t.Fatal("the consumer got nothing")
		}
		got[string(d.Body)]++
		var tokens []string
		for more := true; more && len(tokens) < 8; { // a pull takes what has been read by then
			pulled := pull(5 * time.Second)
			for _, m := range pulled {
				got[string(m.Message.Payload)]++
				tokens = append(tokens, m.Token)
			}
			more = len(pulled) > 0
		}
		if len(tokens) < 8 { // the consumer may have one more on its way
			t.Errorf("the pulls got %d messages, want what the consumer has no credit for", len(tokens))
		}
		r, err := p.Output(w.hosts[Output].addr).Settle(w.t.Context(), connect.NewRequest(&pb.SettleRequest{Verb: "ack", Tokens: tokens}))
		w.ok(err)
		if len(r.Msg.Failures) > 0 {
			t.Errorf("an ack by token was refused: %v", r.Msg.Failures)
		}
		w.ok(d.Ack())
		for b, n := range w.collect(con, len(bodies)-len(got)) {
			got[b] += n
		}
		w.all(got, bodies, true)
		w.close(con)
	})
}

// TestCluster_ThrottledReadersGoOn has a consumer hold the most a share may have outstanding, then settle it: reading
// resumes.
func TestCluster_ThrottledReadersGoOn(t *testing.T) {
	bubble(t, Options{Output: func(c *outputhost.Config) { c.ReadAhead = 100_000 }}, func(w *world) {
		w.group("g", nil)
		const n = 12_000 // above what may be outstanding
		p := w.publisher()
		body := make([]byte, 1000)
		for i := range n {
			copy(body, fmt.Sprintf("%06d", i))
			w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: body}, nil))
		}
		w.ok(p.Close(w.t.Context()))
		con := w.consumer("g", client.Prefetch(20_000), client.PrefetchBytes(30<<20))
		var held []*client.Delivery
		for d := w.take(con, time.Minute); d != nil; d = w.take(con, 2*time.Second) {
			held = append(held, d)
		}
		if len(held) > 10_500 || len(held) < 9_000 {
			t.Errorf("%d are outstanding, want the limit of 10,000", len(held))
		}
		for _, d := range held {
			w.ok(d.Ack())
		}
		if got := w.collect(con, n-len(held)); len(got) != n-len(held) {
			t.Errorf("%d more came, want %d", len(got), n-len(held))
		}
		w.close(con)
	})
}

// TestCluster_GroupsComeAndGo makes groups before and after extents, changes one, and deletes one under its consumer.
func TestCluster_GroupsComeAndGo(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("before", nil)
		w.publish("a")
		w.group("after", nil)
		w.group("latest", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		w.publish("b")
		for g, bodies := range map[string][]string{"before": {"a", "b"}, "after": {"a", "b"}, "latest": {"b"}} {
			con := w.consumer(g)
			for _, b := range bodies {
				w.ok(w.next(con, b, 1).Ack())
			}
			w.close(con)
		}
		con := w.consumer("after")
		w.ok(w.Client.Admin().DeleteGroup(w.t.Context(), queue, "after"))
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		defer cancel()
		for _, err := range con.Deliveries(ctx) {
			if core.CodeOf(err) != core.CodeNotFound {
				t.Errorf("the consumer of a deleted group got %v, want %s", err, core.CodeNotFound)
			}
		}
		if ctx.Err() != nil {
			t.Error("the consumer of a deleted group lives on")
		}
		w.close(con)
		w.group("after", nil) // made again: from the start
		con = w.consumer("after")
		w.ok(w.next(con, "a", 1).Ack())
		w.ok(w.next(con, "b", 1).Ack())
		w.close(con)
	})
}
