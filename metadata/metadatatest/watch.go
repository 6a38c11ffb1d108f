package metadatatest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/columbamq/columba/metadata"
)

// watching runs a watch until the test ends and passes on its calls, folded.
func watching(t *testing.T, s metadata.Store, table metadata.Table, partition string) (changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := make(chan struct{}, 1)
	var wg sync.WaitGroup
	inside := false // the race detector sees concurrent calls
	wg.Go(func() {
		err := s.Watch(ctx, table, partition, func() {
			if inside {
				t.Error("changed is called concurrently")
			}
			inside = true
			select {
			case calls <- struct{}{}:
			default:
			}
			inside = false
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v, want the context's error", err)
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			wg.Wait()
		})
	}
	t.Cleanup(stop)
	return calls, stop
}

// follow waits until a watcher that reads after each call has seen want.
func follow(t *testing.T, changed <-chan struct{}, seen func() bool) {
	t.Helper()
	for !seen() {
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("the watch missed a change")
		}
	}
}

func watch(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	inserted, _ := watching(t, s, swaps, "p")
	written, _ := watching(t, s, puts, "p")
	<-inserted // the call at the start
	<-written
	version := func() metadata.Version {
		row, err := s.Get(ctx, swaps, key("a"), metadata.Serial)
		wantOK(t, "get", err)
		return row.Version
	}
	value := func(table metadata.Table) string {
		row, err := s.Get(ctx, table, key("a"), metadata.Serial)
		if err != nil {
			return ""
		}
		return string(row.Value)
	}
	changes := []struct {
		changed <-chan struct{}
		table   metadata.Table
		want    string
		change  func() error
	}{
		{inserted, swaps, "1", func() error { return s.Insert(ctx, swaps, key("a"), []byte("1")) }},
		{inserted, swaps, "2", func() error { return s.Update(ctx, swaps, key("a"), version(), []byte("2"), 0) }},
		{inserted, swaps, "", func() error { return s.Delete(ctx, swaps, key("a"), version()) }},
		{written, puts, "1", func() error { return s.Put(ctx, puts, key("a"), []byte("1"), at(1), 0, metadata.One) }},
		{written, puts, "2", func() error {
			return s.PutAll(ctx, puts, []metadata.Row{{Key: key("a"), Value: []byte("2"), Written: at(2)}}, metadata.One)
		}},
		{written, puts, "", func() error { return s.Remove(ctx, puts, key("a"), at(3), metadata.One) }},
	}
	for _, c := range changes {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.change(); err != nil {
				t.Error(err)
			}
		})
		<-c.changed // every change calls, whatever was read before
		wg.Wait()
		follow(t, c.changed, func() bool { return value(c.table) == c.want })
	}
}

func watchPartition(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	var watches []<-chan struct{}
	for range 3 {
		w, _ := watching(t, s, swaps, "p")
		<-w
		watches = append(watches, w)
	}
	gone, stop := watching(t, s, swaps, "p")
	<-gone
	stop()
	select { // a call of the time before stop
	case <-gone:
	default:
	}
	const rows = 50
	for i := range rows {
		wantOK(t, "insert", s.Insert(ctx, swaps, key(string(rune('a'+i))), nil))
	}
	for _, w := range watches {
		follow(t, w, func() bool {
			got, err := listAll(ctx, s, swaps, "p", rows)
			return err == nil && len(got) == rows
		})
	}
	select {
	case <-gone:
		t.Error("a watch that ended was called")
	default:
	}
}
