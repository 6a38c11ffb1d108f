package outputhost

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// slow is metadata whose single rows, and done rows, come after a while.
type slow struct {
	metadata.Store
	by time.Duration
}

func (s slow) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := s.wait(ctx); err != nil {
		return metadata.Row{}, err
	}
	return s.Store.Get(ctx, t, k, c)
}

func (s slow) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Dones {
		if err := s.wait(ctx); err != nil {
			return nil, false, err
		}
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

func (s slow) wait(ctx context.Context) error {
	select {
	case <-time.After(s.by):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shareCount counts the shares of the host.
func (b *harness) shareCount() int {
	n := 0
	for _, g := range b.groupList() {
		g.mu.Lock()
		n += len(g.mu.shares)
		g.mu.Unlock()
	}
	return n
}

// TestAssign_WhatIsTakenIsDroppedAtOnce: a list is being applied with slow metadata when a newer one comes, which lacks
// what the host has and what the older one is about to give. A caller that gives up waiting for its turn does so at its
// deadline, and nothing else waits.
func TestAssign_WhatIsTakenIsDroppedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		_, had := b.group()
		if err := b.give(1, had); err != nil {
			t.Fatal(err)
		}
		var coming []*pb.Assignment
		for range 10 {
			_, a := b.group()
			coming = append(coming, a)
		}
		_, kept := b.group()
		b.deps.Meta = slow{b.meta, time.Second}
		var lists sync.WaitGroup
		lists.Go(func() {
			if err := b.give(2, append(coming, had)...); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		if n := b.shareCount(); n != 1 {
			t.Fatalf("%d shares, want the one it had", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := b.giveIn(ctx, 3, kept)
		cancel()
		if core.CodeOf(err) != core.CodeDeadline || time.Since(began) != 100*time.Millisecond {
			t.Errorf("after %s: %v, want %s at its deadline", time.Since(began), err, core.CodeDeadline)
		}
		if n := b.shareCount(); n != 0 {
			t.Errorf("%d shares that the newest list lacks are there", n)
		}
		lists.Wait()
		if n := b.shareCount(); n != 0 {
			t.Errorf("the older list gave %d shares that the newest lacks", n)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the older list was applied for %s after a newer one had come", took)
		}
		if err := b.give(3, kept); err != nil || b.shareCount() != 1 {
			t.Errorf("%v, %d shares, want the one of the newest list", err, b.shareCount())
		}
	})
}
