package integration

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestStartIsExact creates groups between two batches of messages; kills in between seal extents, so that a start has
// to look at more than one.
func TestStartIsExact(t *testing.T) {
	const n = 20
	crashing(t, func(w *world, crash func()) {
		w.publish(numbers(0, n)...)
		crash()
		w.publish(numbers(n, n)...)
		process.Eventually(w.t, "the clock goes on", after(2*time.Millisecond))
		between := time.Now()
		process.Eventually(w.t, "the clock goes on", after(2*time.Millisecond))
		w.publish(numbers(2*n, n)...)

		starts := map[string]struct {
			first int
			start core.Start
		}{
			"earliest": {0, core.Start{Mode: core.StartEarliest}},
			"latest":   {3 * n, core.Start{Mode: core.StartLatest}},
			"time":     {2 * n, core.Start{Mode: core.StartTime, At: between}},
			"past":     {0, core.Start{Mode: core.StartTime, At: between.Add(-time.Hour)}},
		}
		for name, s := range starts {
			w.group(name, func(g *core.GroupSpec) { g.Start = s.start })
		}
		if r := w.server.Run("", "create", "group", queue, "future", "--start", time.Now().Add(time.Hour).Format(time.RFC3339)); r.Code != core.ExitUsage {
			w.t.Errorf("a start in the future was taken: %+v", r)
		}
		w.server.Must("", "create", "group", queue, "all-of-it", "--start", "-1h")
		w.server.Must("", "create", "group", queue, "from", "--start", between.UTC().Format(time.RFC3339Nano))
		crash()
		w.publish(numbers(3*n, n)...)
		for name, s := range starts {
			w.gets(name, numbers(s.first, 4*n-s.first))
		}
		w.gets("all-of-it", numbers(0, 4*n))
		w.gets("from", numbers(2*n, 2*n))
	})
}

// after is a condition that holds once d has passed.
func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// gets checks that a group gets exactly these messages.
func (w *world) gets(group string, want []string) {
	w.t.Helper()
	con := w.consumer(group)
	defer closeConsumer(con)
	if got := w.bodies(con, len(want)); !slices.Equal(got, want) {
		w.t.Errorf("group %s got %v, want %v", group, got, want)
	}
	if d := w.take(con, 300*time.Millisecond); d != nil {
		w.t.Errorf("group %s got %q, which is too much", group, d.Body)
	}
}

// TestStartDurationBack takes what is younger than the duration.
func TestStartDurationBack(t *testing.T) {
	w := newWorld(t)
	w.publish("old")
	pause(6 * time.Second)
	w.publish("young")
	w.server.Must("", "create", "group", queue, "g", "--start", "-5s") // so long may the command take
	w.gets("g", []string{"young"})
}

// TestLatestUnderLoad creates groups while a publisher is at work on an open extent. Messages acknowledged before the
// call are not delivered, messages published after it are, and between the two there is one cut per extent.
func TestLatestUnderLoad(t *testing.T) {
	const groups, between = 5, 3000 // messages acknowledged from one group to the next
	w := newWorld(t)
	p, err := w.client.Publisher(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	var mu sync.Mutex
	acked := make(map[int]client.Receipt)
	sent := 0
	count := func() (before, after int) {
		mu.Lock()
		defer mu.Unlock()
		return len(acked), sent
	}
	var publisher sync.WaitGroup
	enough := make(chan struct{})
	publisher.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-enough:
				return
			default:
			}
			mu.Lock()
			sent = i + 1
			mu.Unlock()
			err := p.PublishAsync(t.Context(), client.Message{Body: []byte(strconv.Itoa(i))}, func(r client.Receipt, err error) {
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				acked[i] = r
			})
			if err != nil {
				t.Error(err)
				return
			}
			if i%50 == 0 {
				pause(time.Millisecond)
			}
		}
	})
	type made struct{ before, after int }
	bounds := make([]made, groups)
	for i := range bounds {
		process.Eventually(t, "the publisher goes on", func() bool { a, _ := count(); return a > (i+1)*between })
		before, _ := count()
		w.group("g"+strconv.Itoa(i), func(g *core.GroupSpec) { g.Start = core.Start{} })
		_, after := count()
		bounds[i] = made{before, after}
	}
	process.Eventually(t, "the last group has messages of its own", func() bool { a, _ := count(); return a > bounds[groups-1].after })
	close(enough)
	publisher.Wait()
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, total := count()
	for i, b := range bounds {
		w.checkLatest("g"+strconv.Itoa(i), b.before, b.after, total, acked)
	}
}

func (w *world) checkLatest(group string, before, after, total int, acked map[int]client.Receipt) {
	w.t.Helper()
	con := w.consumer(group)
	defer closeConsumer(con)
	got := make(map[int]bool)
	for end := time.Now().Add(process.Patience); ; {
		d := w.take(con, time.Second)
		if d == nil && w.depth(group) != (depth{}) && time.Now().Before(end) {
			continue
		}
		if d == nil {
			break
		}
		n, _ := strconv.Atoi(string(d.Body))
		if got[n] {
			w.t.Errorf("group %s got %d twice", group, n)
		}
		got[n] = true
		w.settle(d.Ack())
	}
	first := total // of what it got, by number: a publisher's order is that of its extent
	for n := range got {
		first = min(first, n)
	}
	if first < before || first > after {
		w.t.Errorf("group %s begins with %d; %d were acknowledged before it was made, %d sent when it was there", group, first, before, after)
	}
	if len(got) != total-first {
		w.t.Errorf("group %s got %d messages, want all %d from %d on", group, len(got), total-first, first)
	}
	if acked[first].Extent != acked[total-1].Extent {
		w.t.Logf("group %s reads more than one extent", group)
	}
}
