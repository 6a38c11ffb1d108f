package recent_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/frontend/recent"
)

var errAway = errors.New("the metadata are away")

// source counts the reads of a cache. Safe for concurrent use.
type source struct {
	mu     sync.Mutex
	reads  int
	answer string
	err    error
	takes  time.Duration
}

func (s *source) set(answer string, err error, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.err, s.takes = answer, err, takes
}

func (s *source) read(ctx context.Context, _ string) (string, int, error) {
	s.mu.Lock()
	s.reads++
	takes, answer, err := s.takes, s.answer, s.err
	s.mu.Unlock()
	select {
	case <-time.After(takes):
		return answer, 1, err
	case <-ctx.Done():
		return "", 0, ctx.Err()
	}
}

// test runs f on a cache in virtual time. want checks an answer, and how many reads there were since the last check.
func test(t *testing.T, f func(c *recent.Cache[int, string], s *source, want func(what, answer string, err error, reads int, took time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := recent.New[int, string](recent.Config{
			Fresh: time.Second, Stale: time.Minute, Patience: 250 * time.Millisecond, Timeout: 5 * time.Second, Weight: 10, Now: time.Now,
		})
		s := &source{}
		f(c, s, func(what, answer string, err error, reads int, took time.Duration) {
			t.Helper()
			began := time.Now()
			got, gotErr := c.Get(t.Context(), 1, s.read)
			if d := time.Since(began); got != answer || !errors.Is(gotErr, err) || d != took {
				t.Errorf("%s: got %q, %v after %s, want %q, %v after %s", what, got, gotErr, d, answer, err, took)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.reads != reads {
				t.Errorf("%s: %d reads, want %d", what, s.reads, reads)
			}
			s.reads = 0
		})
	})
}

func TestCache_AFreshAnswerIsNotReadAgain(t *testing.T) {
	test(t, func(_ *recent.Cache[int, string], s *source, want func(string, string, error, int, time.Duration)) {
		s.set("a", nil, 0)
		want("first", "a", nil, 1, 0)
		s.set("b", nil, 0)
		time.Sleep(time.Second - 1)
		want("fresh", "a", nil, 0, 0)
		time.Sleep(time.Nanosecond)
		want("no longer fresh", "b", nil, 1, 0)
	})
}

func TestCache_ASlowReadIsRepeatedLessOften(t *testing.T) {
	test(t, func(_ *recent.Cache[int, string], s *source, want func(string, string, error, int, time.Duration)) {
		s.set("a", nil, 200*time.Millisecond)
		want("first", "a", nil, 1, 200*time.Millisecond)
		time.Sleep(4*time.Second - 1)
		want("fresh", "a", nil, 0, 0)
		time.Sleep(time.Nanosecond)
		want("no longer fresh", "a", nil, 1, 200*time.Millisecond)
	})
}

func TestCache_TheLastAnswerCountsWhileReadsFail(t *testing.T) {
	test(t, func(_ *recent.Cache[int, string], s *source, want func(string, string, error, int, time.Duration)) {
		s.set("", errAway, 0)
		want("nothing is known", "", errAway, 1, 0)
		s.set("a", nil, 0)
		want("first", "a", nil, 1, 0)
		s.set("", errAway, 0)
		time.Sleep(time.Second)
		want("away", "a", nil, 1, 0)
		want("away, at once after a failure", "a", nil, 0, 0)
		time.Sleep(time.Second)
		want("away, a second later", "a", nil, 1, 0)
		s.set("b", nil, time.Hour)
		time.Sleep(time.Second)
		want("no answer", "a", nil, 1, 250*time.Millisecond)
		want("the same read", "a", nil, 0, 0)
		time.Sleep(time.Minute)
		want("the answer is too old", "", context.DeadlineExceeded, 1, 5*time.Second)
	})
}

func TestCache_AnOutdatedAnswerIsReadAgainOnce(t *testing.T) {
	test(t, func(c *recent.Cache[int, string], s *source, want func(string, string, error, int, time.Duration)) {
		s.set("a", nil, 0)
		want("first", "a", nil, 1, 0)
		time.Sleep(time.Nanosecond)
		before := time.Now()
		c.Outdate(1, before)
		want("outdated", "a", nil, 1, 0)
		c.Outdate(1, before) // as another call of the same moment says
		want("read since", "a", nil, 0, 0)
		c.Put(1, "b", before.Add(-1))
		want("put of before", "a", nil, 0, 0)
		time.Sleep(time.Nanosecond)
		c.Put(1, "b", time.Now())
		want("put", "b", nil, 0, 0)
	})
}

func TestCache_CallersShareARead(t *testing.T) {
	test(t, func(c *recent.Cache[int, string], s *source, want func(string, string, error, int, time.Duration)) {
		s.set("a", nil, time.Second)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got, err := c.Get(context.Background(), 1, s.read); got != "a" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		wg.Wait()
		want("after all", "a", nil, 1, 0)
	})
}

// TestCache_ACallThatHasEndedReadsNothing: a call that looks many keys up a few at a time, and ends, would else begin
// all of its reads at once.
func TestCache_ACallThatHasEndedReadsNothing(t *testing.T) {
	test(t, func(c *recent.Cache[int, string], s *source, _ func(string, string, error, int, time.Duration)) {
		s.set("a", nil, time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for key := range 5 {
			if _, err := c.Get(ctx, key, s.read); err == nil {
				t.Error("it has an answer")
			}
		}
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reads != 0 || c.Weight() != 0 {
			t.Errorf("%d reads, weight %d, want none", s.reads, c.Weight())
		}
	})
}

func TestCache_WeighsAsMuchAsItMay(t *testing.T) {
	c := recent.New[int, int](recent.Config{Fresh: time.Hour, Stale: time.Hour, Patience: 1, Timeout: time.Minute, Weight: 10, Now: time.Now})
	reads := 0
	get := func(key, weight int) {
		if v, err := c.Get(t.Context(), key, func(context.Context, int) (int, int, error) { reads++; return key, weight, nil }); v != key || err != nil {
			t.Errorf("key %d: got %d, %v", key, v, err)
		}
	}
	for key := range 100 {
		get(key, 3)
		get(0, 3)
	}
	if w := c.Weight(); w > 10 || w < 8 || reads != 100 {
		t.Errorf("weighs %d of 10 after %d reads, want 100: the key that is asked for all the time stays", w, reads)
	}
	get(1000, 50)
	if w := c.Weight(); w > 10 {
		t.Errorf("weighs %d of 10 after an answer that weighs more", w)
	}
}

func TestCache_CloseEndsReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := recent.New[int, int](recent.Config{Fresh: time.Hour, Stale: time.Hour, Patience: 1, Timeout: time.Minute, Weight: 10, Now: time.Now})
		hangs := func(ctx context.Context, _ int) (int, int, error) {
			<-ctx.Done()
			return 0, 0, context.Cause(ctx)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := c.Get(t.Context(), 1, hangs)
			failed <- err
		}()
		synctest.Wait()
		began := time.Now()
		c.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("Close waited for %s", took)
		}
		if err := <-failed; err == nil {
			t.Error("a read that was ended has an answer")
		}
		if _, err := c.Get(t.Context(), 2, hangs); err == nil {
			t.Error("a closed cache reads")
		}
	})
}
