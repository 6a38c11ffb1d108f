package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestMergeOfDeadLettersSurvivesKills merges 50,000 dead letters, half of them by a selection and the rest whole, while
// the controller, and then an output host, is killed ten times each for either: each message ends in one place, and
// comes from there.
func TestMergeOfDeadLettersSurvivesKills(t *testing.T) {
	long(t)
	mergeUnderKills(t, scaled(t, 50_000), scaled(t, 10))
}

// TestMergeOfDeadLettersSurvivesAKill is the same with few of them, and a kill of each.
func TestMergeOfDeadLettersSurvivesAKill(t *testing.T) { mergeUnderKills(t, 400, 1) }

func mergeUnderKills(t *testing.T, count, kills int) {
	c := process.StartCluster(t, process.Layout{})
	random := seeded(t)
	c.Controller.Must("", "create", "queue", queue)
	c.Controller.Must("", "create", "group", queue, "g", "--start", "earliest", "--max-deliveries", "1", "--lock-timeout", "60s")
	c.Controller.Must(lines(count), "publish", queue)
	cl := c.Controller.Client()
	stop := reject(t, cl)
	var letters map[string]int
	process.EventuallyWithin(t, 5*time.Minute, "all are dead letters", func() bool {
		letters = deadLetters(t, cl)
		return letters["odd"]+letters["even"] >= count
	})
	stop()
	process.AwaitCheckpoints(t, c.Outputs...) // with them it is past them where they came from
	m := consumeMerged(t, cl)
	for _, what := range []string{"odd", ""} {
		selection, want := core.Selection{Reasons: []string{what}}, letters[what]
		if what == "" {
			selection, want = core.Selection{}, letters["even"]
		}
		o, err := cl.Admin().MergeSelected(t.Context(), queue, "g", selection, max(count/60, 50))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*process.Server{c.Controller, c.Outputs[0]} {
			for range kills {
				<-time.After(time.Duration(random.IntN(3000)) * time.Millisecond >> random.IntN(6)) // the search is over soon
				s.Restart()
				c.AwaitHosts()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		o, err = cl.Admin().WaitOperation(ctx, o.ID)
		cancel()
		if err != nil || o.State != "done" || int(o.Done) != want {
			t.Fatalf("the merge of %q is %+v, %v; there were %v", what, o, err, letters)
		}
		left := 0
		if what != "" {
			left = letters["even"]
		}
		process.EventuallyOr(t, process.Patience, func() bool { now := deadLetters(t, cl); return now != nil && now["odd"] == 0 && now["even"] == left }, func() string {
			return fmt.Sprintf("after the merge of %q there are dead letters %v, want %d that are even", what, deadLetters(t, cl), left)
		})
	}
	process.EventuallyOr(t, 10*time.Minute, func() bool { return m.known() >= count }, func() string {
		return fmt.Sprintf("all of %d merged messages came: %d did", count, m.known())
	})
	if m.elsewhere > letters["odd"]+letters["even"]-count { // a letter that was buried twice is two from the start
		t.Errorf("%d messages came from two places", m.elsewhere)
	}
}

// reject has every message of the group become a dead letter, for one of two reasons by turns, until it is stopped.
func reject(t *testing.T, cl *client.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int64
	done := make(chan error, 1)
	go func() {
		done <- cl.Work(ctx, queue, "g", func(context.Context, *client.Delivery) error {
			return client.Reject([]string{"even", "odd"}[n.Add(1)%2])
		}, client.Concurrency(64))
	}()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// deadLetters counts them by their errors; nil: a host is on its way.
func deadLetters(t *testing.T, cl *client.Client) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for d, err := range cl.Admin().DeadLetters(t.Context(), queue, "g") {
		if err != nil {
			return nil
		}
		out[d.Error]++
	}
	return out
}

// merged is where messages came from.
type merged struct {
	mu        sync.Mutex
	places    map[client.MessageID]core.Receipt
	elsewhere int // messages that came from a second place
}

func (m *merged) known() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.places)
}

// consumeMerged acks what comes until the test ends.
func consumeMerged(t *testing.T, cl *client.Client) *merged {
	t.Helper()
	m := &merged{places: make(map[client.MessageID]core.Receipt)}
	ackAll(t, cl, queue, func(d *client.Delivery) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if at, known := m.places[d.ID]; known && at != d.Receipt {
			m.elsewhere++
		}
		m.places[d.ID] = d.Receipt
	})
	return m
}

// ackAll has group g consume a queue until the test ends. Each delivery is seen before it is acked.
func ackAll(t *testing.T, cl *client.Client, path string, see func(d *client.Delivery)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	con, err := cl.Consumer(ctx, path, "g")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for d, err := range con.Deliveries(ctx) {
			if err != nil {
				return
			}
			see(d)
			_ = d.Ack() // one that is refused comes again
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}
