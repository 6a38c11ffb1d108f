package intake

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
)

func testLimits() Limits {
	return Limits{Body: 1 << 20, Small: 1000, Large: 1000, Waiting: 2, Wait: 5 * time.Second}
}

// body of a test: cut counts how often it was cut.
type testBody struct {
	*Body
	mu   sync.Mutex
	cuts int
}

func newTestBody(b *Budget, address string, conn any) *testBody {
	t := &testBody{}
	t.Body = b.Body(address, conn, func() {
		t.mu.Lock()
		t.cuts++
		t.mu.Unlock()
	})
	return t
}

func (t *testBody) wasCutAt() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cuts
}

func hold(t *testing.T, b *testBody, c class, n int64, want core.Code) {
	t.Helper()
	err := b.grow(t.Context(), c, n)
	if got := core.CodeOf(err); err == nil && want != "" || err != nil && got != want {
		t.Errorf("%d bytes of class %d: %v, want %q", n, c, err, want)
	}
}

func TestSharesOfTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(testLimits(), time.Now)
		one, two, three := newTestBody(b, "a", 1), newTestBody(b, "a", 2), newTestBody(b, "b", 3)
		hold(t, one, large, 501, core.CodeTooLarge) // more than a connection's half, ever
		hold(t, one, large, 500, "")
		same := newTestBody(b, "a", 1)
		same.complete()
		hold(t, same, large, 1, core.CodeThrottled) // the connection has its half
		one.complete()
		hold(t, two, large, 250, "")
		hold(t, two, large, 1, core.CodeThrottled) // the address has its three quarters
		hold(t, three, large, 250, "")
		hold(t, three, large, 1, core.CodeThrottled) // the room is full
		hold(t, three, small, 500, "")               // small ones have their own
		for _, d := range []*testBody{one, two, three, same} {
			d.Release()
			d.Release()
		}
		if b.Held() != 0 || len(b.mu.rooms[large].byAddress) != 0 || len(b.mu.rooms[large].byConn) != 0 || len(b.mu.arriving) != 0 {
			t.Errorf("%d bytes are held after all were released, %d addresses", b.Held(), len(b.mu.rooms[large].byAddress))
		}
		hold(t, newTestBody(b, "a", 1), large, 500, "")
	})
}

func TestSmallestWaiterGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(testLimits(), time.Now)
		full := []*testBody{newTestBody(b, "a", 1), newTestBody(b, "b", 2), newTestBody(b, "c", 3)}
		for i, n := range []int64{500, 250, 250} {
			hold(t, full[i], large, n, "")
			full[i].complete()
		}
		var order []int64
		var mu sync.Mutex
		var wg sync.WaitGroup
		results := map[int64]error{}
		for i, n := range []int64{400, 300, 200} { // two may wait: the largest is refused when the third comes
			d := newTestBody(b, "d", 10+i)
			wg.Go(func() {
				err := d.grow(t.Context(), large, n)
				mu.Lock()
				results[n] = err
				if err == nil {
					order = append(order, n)
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
				d.Release()
			})
			synctest.Wait()
		}
		mu.Lock()
		if core.CodeOf(results[400]) != core.CodeThrottled || len(results) != 1 {
			t.Errorf("with three that wait the outcomes are %v, want the largest throttled", results)
		}
		mu.Unlock()
		full[1].Release() // room for the smaller of the two, although it came later
		synctest.Wait()
		full[0].Release()
		wg.Wait()
		if len(order) != 2 || order[0] != 200 {
			t.Errorf("room was given in the order %v, want 200 first", order)
		}
	})
}

func TestSlowBodyIsCutOnlyWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(testLimits(), time.Now)
		slow, other, fast := newTestBody(b, "a", 1), newTestBody(b, "b", 2), newTestBody(b, "c", 3)
		hold(t, slow, large, 500, "")
		hold(t, other, large, 500, "")
		other.complete() // is worked on: never cut
		time.Sleep(5 * time.Second)
		if slow.wasCutAt() != 0 {
			t.Error("a slow body was cut although nobody waits")
		}
		done := make(chan error, 1)
		go func() { done <- fast.grow(t.Context(), large, 300) }()
		synctest.Wait()
		time.Sleep(2 * look)
		if slow.wasCutAt() == 0 || other.wasCutAt() != 0 {
			t.Errorf("cuts while another waits: the slow one %d, the complete one %d, want the slow one", slow.wasCutAt(), other.wasCutAt())
		}
		if !slow.complete() {
			t.Error("the slow body does not learn that it was cut")
		}
		slow.Release()
		if err := <-done; err != nil {
			t.Errorf("who waited: %v", err)
		}
		if !slow.deadline().Before(time.Now()) {
			t.Error("a body that was cut may read on")
		}
	})
}

func TestFastBodyIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(testLimits(), time.Now)
		fast, waits := newTestBody(b, "a", 1), newTestBody(b, "a", 2)
		hold(t, fast, large, 500, "")
		done := make(chan error, 1)
		go func() { done <- waits.grow(t.Context(), large, 300) }() // its address has 750
		for range 40 {
			fast.progress(110 << 10) // per 100 ms: above the rate of who is in the way
			time.Sleep(100 * time.Millisecond)
		}
		if fast.wasCutAt() != 0 {
			t.Error("a body that came fast was cut")
		}
		if err := <-done; core.CodeOf(err) != core.CodeThrottled {
			t.Errorf("who waited in vain: %v, want throttled", err)
		}
	})
}

func TestWaitEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(testLimits(), time.Now)
		d := newTestBody(b, "a", 1)
		hold(t, d, large, 500, "")
		d.complete()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("gone"))
		defer cancel()
		began := time.Now()
		err := newTestBody(b, "a", 1).grow(ctx, large, 1)
		if core.CodeOf(err) != core.CodeUnavailable || time.Since(began) != time.Second {
			t.Errorf("a caller that goes after 1s: %v after %s", err, time.Since(began))
		}
		if b.Waiting() != 0 {
			t.Errorf("%d wait after all have gone", b.Waiting())
		}
	})
}
