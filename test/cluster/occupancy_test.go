package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// TestOccupancy_GoodOnesGoOn has a part of the messages fail at each delivery, more than a share keeps in memory: the
// good ones are delivered once each and at once, the bad ones come again in time and end as dead letters after max
// deliveries.
func TestOccupancy_GoodOnesGoOn(t *testing.T) {
	for _, x := range []struct{ messages, bad int }{{30_000, 5}, {underrace.Of(5_000, 14_000), 95}} {
		for _, backoff := range []time.Duration{0, time.Second, 20 * time.Second} {
			t.Run(fmt.Sprintf("%d%%/%s", x.bad, backoff), func(t *testing.T) {
				underrace.One(t, x.bad == 95 && backoff == 20*time.Second)
				bubble(t, Options{}, func(w *world) { w.failing(x.messages, x.bad, backoff) })
			})
		}
	}
}

// failing publishes messages of which a part, percent, is nacked at each delivery.
func (w *world) failing(messages, part int, backoff time.Duration) {
	const most = 3
	w.group("g", func(g *core.GroupSpec) {
		patient(g)
		g.MaxDeliveries = most
		if backoff > 0 {
			g.Backoff = core.Backoff{Min: backoff, Factor: 1, Max: backoff}
		}
	})
	var bad []string
	isBad := func(body string) bool {
		n, err := strconv.Atoi(body)
		w.ok(err)
		return n%100 < part
	}
	bodies := numbers(1, messages)
	for _, body := range bodies {
		if isBad(body) {
			bad = append(bad, body)
		}
	}
	began := time.Now()
	w.publish(bodies...)
	con := w.consumer("g", client.Prefetch(2000))
	acked, attempts, failed := map[string]bool{}, map[string]int{}, map[string]time.Time{}
	var late []time.Duration
	var goodDone time.Duration
	deliveries := messages + (most-1)*len(bad)
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			w.t.Fatalf("%v; %d good ones of %d are acked, %d deliveries are left, depth %s", err, len(acked), messages-len(bad), deliveries, w.places("g"))
		}
		body := string(d.Body)
		if attempts[body]++; attempts[body] != d.Attempt {
			w.t.Fatalf("%s came as attempt %d, its delivery number is %d", body, d.Attempt, attempts[body])
		}
		if at, again := failed[body]; again {
			if late = append(late, time.Since(at)-backoff); late[len(late)-1] < 0 {
				w.t.Fatalf("%s came %s early", body, -late[len(late)-1])
			}
		}
		if isBad(body) {
			failed[body] = time.Now()
			w.ok(d.Nack())
		} else {
			acked[body] = true
			w.ok(d.Ack())
		}
		if len(acked) == messages-len(bad) && goodDone == 0 {
			goodDone = time.Since(began)
		}
		if deliveries--; deliveries == 0 {
			break
		}
	}
	if deliveries > 0 {
		w.t.Fatalf("%d deliveries did not come; %d good ones are acked, depth %s", deliveries, len(acked), w.places("g"))
	}
	if goodDone > 10*time.Second {
		w.t.Errorf("the good ones took %s", goodDone)
	}
	slices.Sort(late)
	if p99 := late[len(late)*99/100]; p99 > time.Second {
		w.t.Errorf("of %d retries one of a hundred came %s late, or later", len(late), p99)
	}
	w.dead("g", bad, most)
	w.eventually("nothing is left", time.Minute, func() bool { return w.places("g") == fmt.Sprintf("0 0 0 0 %d", len(bad)) })
	if d := w.take(con, time.Minute); d != nil {
		w.t.Errorf("%s came once more, as attempt %d", d.Body, d.Attempt)
	}
	w.close(con)
}
