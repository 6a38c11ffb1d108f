package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestMergeOfDeadLettersSurvivesKills merges 50,000 dead letters while the controller, and then an output host, is killed ten times each: each
// message ends in one place, and comes from there.
func TestMergeOfDeadLettersSurvivesKills(t *testing.T) {
	long(t)
	count, kills := scaled(t, 50_000), scaled(t, 10)
	c := process.StartCluster(t, process.Layout{})
	random := seeded(t)
	c.Controller.Must("", "create", "queue", queue)
	c.Controller.Must("", "create", "group", queue, "g", "--start", "earliest", "--max-deliveries", "1", "--lock-timeout", "60s")
	c.Controller.Must(lines(count), "publish", queue)
	cl := c.Controller.Client()
	reject(t, cl, count)
	var letters int
	process.EventuallyWithin(t, 5*time.Minute, "all are dead letters", func() bool {
		letters = deadLetters(t, cl)
		return letters >= count
	})
	o, err := cl.Admin().MergeDeadLetters(t.Context(), queue, "g", count/60)
	if err != nil {
		t.Fatal(err)
	}
	m := consumeMerged(t, cl)
	for _, s := range []*process.Server{c.Controller, c.Outputs[0]} {
		for range kills {
			<-time.After(time.Duration(random.IntN(3000)) * time.Millisecond)
			s.Restart()
			c.AwaitHosts()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if o, err = cl.Admin().WaitOperation(ctx, o.ID); err != nil || o.State != "done" || o.Done != o.Total || int(o.Done) < letters {
		t.Fatalf("the merge is %+v, %v; there were %d dead letters", o, err, letters)
	}
	process.EventuallyOr(t, 10*time.Minute, func() bool { return m.known() >= count }, func() string {
		return fmt.Sprintf("all of %d merged messages came: %d did", count, m.known())
	})
	if n := deadLetters(t, cl); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	if m.elsewhere > letters-count { // a letter that was buried twice is two from the start
		t.Errorf("%d messages came from two places", m.elsewhere)
	}
}

// reject has every message of the group become a dead letter.
func reject(t *testing.T, cl *client.Client, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	con, err := cl.Consumer(ctx, queue, "g")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Reject("bad"); err != nil {
			t.Fatal(err)
		}
		if n++; n == count {
			break
		}
	}
	if err := con.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func deadLetters(t *testing.T, cl *client.Client) (n int) {
	t.Helper()
	for _, err := range cl.Admin().DeadLetters(t.Context(), queue, "g") {
		if err != nil {
			return -1 // a host is on its way
		}
		n++
	}
	return n
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
	ctx, cancel := context.WithCancel(t.Context())
	con, err := cl.Consumer(ctx, queue, "g")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for d, err := range con.Deliveries(ctx) {
			if err != nil {
				return
			}
			m.mu.Lock()
			if at, known := m.places[d.ID]; known && at != d.Receipt {
				m.elsewhere++
			}
			m.places[d.ID] = d.Receipt
			m.mu.Unlock()
			_ = d.Ack() // one that is refused comes again
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return m
}
