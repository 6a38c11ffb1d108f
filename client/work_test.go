package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

func TestWork_SettlesByTheHandlersError(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 5)
	c := dial(t, f)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	done := make(chan error)
	go func() {
		done <- c.Work(ctx, "/t/q", "g", func(_ context.Context, d *Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			switch d.Receipt.Seq {
			case 1:
				return errors.New("boom")
			case 2:
				panic("oops")
			case 3:
				return fmt.Errorf("busy: %w", Retry(3*time.Second))
			case 4:
				return Reject("poison")
			}
			return nil
		}, Concurrency(2))
	}()
	eventually(t, "four acked, one rejected", func() (ok bool) {
		f.state(func() { ok = len(f.mu.acked) == 4 && len(f.mu.rejected) == 1 })
		return ok
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("work: %v", err)
	}
	f.state(func() {
		want := map[int]struct {
			delay  int64
			reason string
		}{1: {-1, "boom"}, 2: {-1, "panic: oops"}, 3: {3000, "busy: retry after 3s"}}
		if len(f.mu.nacks) != len(want) {
			t.Errorf("%d nacks, want %d", len(f.mu.nacks), len(want))
		}
		for _, n := range f.mu.nacks {
			if w := want[int(n.Seq)]; n.DelayMillis != w.delay || string(n.Reason) != w.reason {
				t.Errorf("nack of %d: delay %d, reason %q, want %+v", n.Seq, n.DelayMillis, n.Reason, w)
			}
		}
		if f.mu.rejected[0] != "poison" {
			t.Errorf("rejected with %q", f.mu.rejected[0])
		}
	})
}

func TestWork_ExtendsWhileAHandlerRuns(t *testing.T) {
	f := startFake(t, &fake{lock: 400 * time.Millisecond})
	f.add(t, 1)
	c := dial(t, f)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	err := c.Work(ctx, "/t/q", "g", func(context.Context, *Delivery) error {
		eventually(t, "three extensions", func() (ok bool) {
			f.state(func() { ok = f.mu.extended >= 3 })
			return ok
		})
		cancel()
		return nil
	})
	if err != nil {
		t.Errorf("work: %v", err)
	}
	eventually(t, "acked", func() bool { return f.ackedCount() == 1 })
}

func TestWork_CancelFinishesWhatItHolds(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 20)
	c := dial(t, f)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	var handled atomic.Int32
	err := c.Work(ctx, "/t/q", "g", func(hctx context.Context, _ *Delivery) error {
		handled.Add(1)
		cancel()
		return hctx.Err() // the task goes on
	}, Prefetch(10))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "one acked, the rest given back", func() (ok bool) {
		f.state(func() { ok = len(f.mu.acked) == 1 && len(f.mu.ready) == 19 })
		return ok
	})
	if handled.Load() != 1 {
		t.Errorf("%d handled after cancel", handled.Load())
	}
}

func TestWork_GraceEndsHandlers(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 1)
	c := dial(t, f)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	err := c.Work(ctx, "/t/q", "g", func(hctx context.Context, _ *Delivery) error {
		cancel()
		<-hctx.Done()
		return context.Cause(hctx)
	}, Grace(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the handler's message is nacked", func() (ok bool) {
		f.state(func() { ok = len(f.mu.nacks) == 1 })
		return ok
	})
}

func TestWork_LostLockEndsTheHandler(t *testing.T) {
	f := startFake(t, &fake{lock: 200 * time.Millisecond})
	f.add(t, 1)
	c := dial(t, f)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	err := c.Work(ctx, "/t/q", "g", func(hctx context.Context, d *Delivery) error {
		if d.Attempt == 1 {
			f.cut()
			<-hctx.Done()
			if err := context.Cause(hctx); !errors.Is(err, ErrStale) {
				t.Errorf("handler ends with %v, want stale", err)
			}
			return nil
		}
		cancel()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "acked", func() bool { return f.ackedCount() == 1 })
}

func TestWork_NilHandler(t *testing.T) {
	if err := (&Client{}).Work(t.Context(), "/t/a", "g", nil); !errors.Is(err, ErrBadArgument) {
		t.Fatalf("got %v, want bad argument", err)
	}
}
