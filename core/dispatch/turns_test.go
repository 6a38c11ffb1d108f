package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// TestTurns_OneRetryInFive: while both wait, at most one delivery in five is a retry, whatever the credit of a take.
func TestTurns_OneRetryInFive(t *testing.T) {
	deliveries := underrace.Of(400, 2000)
	for _, credit := range []int{1, 2, 3, 20, 1000} {
		t.Run(fmt.Sprint("credit ", credit), func(t *testing.T) {
			g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true}, 5000)
			for range 5 { // poison, some in each batch of credit
				failAll(t, g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, start, nil))
				save(s, start)
			}
			firsts, retries := 0, 0
			for takes := 1; firsts+retries < deliveries; takes++ {
				runs := g.Take(1, Credit{Messages: credit, Bytes: 1 << 20}, start, nil)
				for _, r := range runs {
					if r.Attempt == 1 {
						firsts += int(r.Count)
					} else {
						retries += int(r.Count)
					}
				}
				if failAll(t, runs) == 0 {
					t.Fatalf("nothing after %d deliveries", firsts+retries)
				}
				save(s, start)
				if takes%10 > 0 { // a check looks at all 5,000 messages
					continue
				}
				if err := g.check(); err != nil {
					t.Fatal(err)
				}
			}
			if all := firsts + retries; retries*retryPart > all+retryPart || retries*retryPart < all/2 {
				t.Errorf("%d retries among %d deliveries, want one in %d", retries, all, retryPart)
			}
		})
	}
}

// failAll has messages that were taken fail, to come again at once, and returns how many.
func failAll(t *testing.T, runs []Run) (n int) {
	t.Helper()
	for _, r := range runs {
		for i := range core.Seq(r.Count) {
			if err := r.Share.Nack(r.Base+i, r.Attempt, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	return n
}

// TestTurns_PoisonWithCreditOfOne: a few messages that always fail, and come again at once, hold up nothing.
func TestTurns_PoisonWithCreditOfOne(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true}, 1000)
	good, taken := 0, 0
	for ; good < 995 && taken < 2000; taken++ {
		for _, r := range g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, start, nil) {
			if r.Base <= 5 {
				failAll(t, []Run{r})
				continue
			}
			s.Ack(r.Base, 1, r.Attempt, start, nil)
			good++
		}
		save(s, start)
	}
	if most := 995*retryPart/(retryPart-1) + 10; good < 995 || taken > most {
		t.Errorf("%d of 995 good ones are done after %d takes, want all after %d", good, taken, most)
	}
}

// TestTurns_OneKindTakesAll: retries that nothing else competes with fill a take, and so do first deliveries.
func TestTurns_OneKindTakesAll(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true}, 50)
	for range 3 {
		if n := failAll(t, g.Take(1, Credit{Messages: 50, Bytes: 1 << 20}, start, nil)); n != 50 {
			t.Fatalf("took %d messages, want all 50", n)
		}
		save(s, start)
	}
}

// TestTurns_ReturnedUnseenIsNoRetry: what no application saw has its turn with first deliveries, and before those that
// were only read.
func TestTurns_ReturnedUnseenIsNoRetry(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Breaker: core.BreakerOff}, 30)
	take(g, 10, start)
	s.Return(1, 1, 10, 1, start, nil)
	runs := g.Take(2, Credit{Messages: 12, Bytes: 1 << 20}, start, nil)
	got := ""
	for _, r := range runs {
		got += fmt.Sprintf("%d+%d@%d ", r.Base, r.Count, r.Attempt)
	}
	if got != "1+12@1 " {
		t.Errorf("after a return of 1 to 10 a take of 12 got %s", got)
	}
}

// TestTurns_ReturningAreRetries: what comes back from the retry queue is a retry, also for the mix of a take of one.
func TestTurns_ReturningAreRetries(t *testing.T) {
	g, back := newReturning(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true})
	for seq := core.Seq(1); seq <= 200; seq++ {
		if err := back.Offer(returned(seq, History{Origin: core.Receipt{Extent: extent(9), Seq: seq}, Attempts: 1}), start); err != nil {
			t.Fatal(err)
		}
	}
	s := g.AddShare(extent(2), State{}, start)
	offer(t, s, 1000)
	now, retries, taken := start, 0, 0
	for taken < 400 {
		runs := g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, now, nil)
		for _, r := range runs {
			taken++
			if r.Share == back {
				retries++
			}
			r.Share.Ack(r.Base, r.Count, r.Attempt, now, nil)
		}
		save(s, now)
		save(back, now)
		now = now.Add(time.Millisecond)
	}
	if retries == 0 || retries*retryPart > taken+retryPart {
		t.Errorf("%d of %d deliveries came back from the retry queue, want one in %d", retries, taken, retryPart)
	}
}
