package cassandra

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// watcher counts the calls of a watch.
type watcher struct {
	calls chan struct{}
	stop  func()
}

func watch(t *testing.T, s *Store, table metadata.Table) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, ended := &watcher{calls: make(chan struct{}, 1000)}, make(chan error, 1)
	go func() { ended <- s.Watch(ctx, table, "p", func() { w.calls <- struct{}{} }) }()
	w.stop = func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
	}
	synctest.Wait()
	return w
}

// called returns how often the watch has called since the last time.
func (w *watcher) called() (n int) {
	synctest.Wait()
	for len(w.calls) > 0 {
		<-w.calls
		n++
	}
	return n
}

func update(t *testing.T, s *Store, table metadata.Table) {
	t.Helper()
	if err := s.Update(t.Context(), table, metadata.Key{Partition: "p", Row: "a"}, 5, nil, 0); err != nil {
		t.Error(err)
	}
}

// A change is told at once by the same store, and within two seconds by another one, also when it came before the watch
// had read any note. Of a table without notes a change by another store is told by and by.
func TestWatch_TellsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		here, there := onBoard(b), onBoard(b)
		defer here.Close()
		defer there.Close()
		w, other := watch(t, here, metadata.Queues), watch(t, here, metadata.Seals)
		defer other.stop()
		defer w.stop()
		if w.called() != 1 || other.called() != 1 {
			t.Error("a watch calls once at the start")
		}
		for range 3 {
			update(t, there, metadata.Queues)
			update(t, there, metadata.Seals)
			<-time.After(2 * time.Second)
			if n := w.called(); n != 1 {
				t.Errorf("%d calls within two seconds of a change elsewhere, want 1", n)
			}
		}
		other.called()
		update(t, here, metadata.Queues)
		if w.called() != 1 {
			t.Error("a change by the same store is not told at once")
		}
		update(t, here, metadata.Seals)
		if other.called() != 1 {
			t.Error("a change of a table without notes is not told at once")
		}
	})
}

// While nothing changes a place costs a small read every second or two, however many watch it, and its watches are
// called about every half minute.
func TestWatch_IsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		s := onBoard(b)
		defer s.Close()
		var all []*watcher
		for range 5 {
			all = append(all, watch(t, s, metadata.Queues))
		}
		for _, w := range all {
			w.called()
		}
		if n := b.readsUntil(10 * time.Minute); n < 300 || n > 600 {
			t.Errorf("%d reads in ten minutes, want about 400", n)
		}
		for _, w := range all {
			if n := w.called(); n < 18 || n > 40 {
				t.Errorf("%d calls in ten minutes, want about 26", n)
			}
			w.stop()
		}
		if n := b.readsUntil(time.Minute); n != 0 {
			t.Errorf("%d reads while nobody watches", n)
		}
		w := watch(t, s, metadata.Queues)
		if n := b.readsUntil(time.Minute); n == 0 {
			t.Error("no reads for a watch that began again")
		}
		w.stop()
	})
}

// A change whose note could not be written is told by and by.
func TestWatch_LostNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{broken: true}
		here, there := onBoard(b), onBoard(b)
		defer here.Close()
		defer there.Close()
		w := watch(t, here, metadata.Queues)
		defer w.stop()
		w.called()
		update(t, there, metadata.Queues)
		<-time.After(tellAnyway + 2*time.Second)
		if w.called() == 0 {
			t.Error("the change is not told")
		}
	})
}

// A change that may have been made is told like one that was: its caller gave up before the outcome was known.
func TestWatch_UnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		here, there := onBoard(b), onBoard(b)
		defer here.Close()
		defer there.Close()
		w, far := watch(t, here, metadata.Queues), watch(t, there, metadata.Queues)
		defer w.stop()
		defer far.stop()
		w.called()
		far.called()
		b.swaps = func() (bool, state, error) { return false, state{}, gocql.ErrTimeoutNoResponse }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := here.Insert(ctx, metadata.Queues, metadata.Key{Partition: "p", Row: "a"}, nil)
		if core.CodeOf(err) != core.CodeUnknown || w.called() != 1 {
			t.Errorf("%v, and the watch is not called", err)
		}
		<-time.After(2 * time.Second)
		if far.called() != 1 {
			t.Error("another store's watch is not called")
		}
		b.swaps = func() (bool, state, error) { return false, state{version: 9, live: true}, nil }
		w.called()
		if err := here.Update(t.Context(), metadata.Queues, metadata.Key{Partition: "p", Row: "a"}, 5, nil, 0); core.CodeOf(err) != core.CodeConflict || w.called() != 0 {
			t.Errorf("%v; a change that was refused is told", err)
		}
	})
}

// Many changes at once leave few notes. The last one is written after the last change, and Close does not wait long.
func TestNotes_AreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{slow: time.Second}
		s := onBoard(b)
		for range 100 {
			update(t, s, metadata.Queues)
			<-time.After(10 * time.Millisecond)
		}
		changed := time.Now()
		<-time.After(3 * time.Second)
		synctest.Wait()
		if b.writes < 2 || b.writes > 4 || b.notes[s.writer] < changed.Add(-10*time.Millisecond).UnixMicro() {
			t.Errorf("%d notes, the last at %s; the last change was at %s", b.writes, time.UnixMicro(b.notes[s.writer]), changed)
		}
		update(t, s, metadata.Queues)
		began := time.Now()
		if err := s.Close(); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("close took %s, %v", time.Since(began), err)
		}
	})
}

// One change after another, as of queues that are created, leaves ten notes a second, however fast they are written.
// The first change is noted at once, and the last one is told as soon as others are.
func TestNotes_FewOfManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{slow: time.Millisecond}
		here, there := onBoard(b), onBoard(b)
		defer here.Close()
		defer there.Close()
		w := watch(t, here, metadata.Queues)
		defer w.stop()
		update(t, there, metadata.Queues)
		<-time.After(5 * time.Millisecond)
		if synctest.Wait(); b.writes != 1 {
			t.Errorf("%d notes after the first change, want 1", b.writes)
		}
		for range 99 {
			update(t, there, metadata.Queues)
			<-time.After(10 * time.Millisecond)
		}
		w.called()
		<-time.After(2*time.Second + notePause)
		if w.called() == 0 {
			t.Error("the last change is not told")
		}
		if b.writes > 11 {
			t.Errorf("%d notes of 100 changes in a second, want 11 at most", b.writes)
		}
	})
}

func TestNotes_TimesGrow(t *testing.T) {
	var n notes
	now := time.UnixMicro(1_800_000_000_000_000)
	for i, test := range []struct {
		now  time.Time
		want int64
	}{{now, now.UnixMicro()}, {now, now.UnixMicro() + 1}, {now.Add(-time.Hour), now.UnixMicro() + 2}, {now.Add(time.Second), now.UnixMicro() + 1e6}} {
		if got := n.at(test.now); got != test.want {
			t.Errorf("note %d is at %d, want %d", i, got, test.want)
		}
	}
}

func TestSightings(t *testing.T) {
	s := sightings{}
	for i, step := range []struct {
		notes map[string]int64
		want  bool
	}{
		{nil, false},
		{map[string]int64{"a": 5}, true},
		{map[string]int64{"a": 5}, false},
		{map[string]int64{"a": 5, "b": 3}, true}, // of a process whose clock is behind
		{map[string]int64{"a": 5}, false},        // of a node that lacks a note
		{map[string]int64{"a": 4, "b": 3}, false},
		{map[string]int64{"b": 4}, true},
		{nil, false}, // all have expired
	} {
		if got := s.take(step.notes); got != step.want {
			t.Errorf("step %d: got %v, want %v", i, got, step.want)
		}
	}
	many := map[string]int64{}
	for i := range maxWriters + 1 {
		many[string(rune(i))] = 1
	}
	s.take(many)
	s.take(map[string]int64{"last": 1})
	if len(s) != 1 {
		t.Errorf("%d sightings are kept", len(s))
	}
}

// On a real node: a change by one store is told by a watch of another one.
func TestStore_WatchOtherStore(t *testing.T) {
	here := open(t)
	defer here.Close()
	there := openPrefix(t, config(t), here.prefix)
	defer there.Close()
	ctx, cancel := context.WithCancel(t.Context())
	calls, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- here.Watch(ctx, metadata.Namespaces, metadata.PartitionID, func() {
			select {
			case calls <- struct{}{}:
			default:
			}
		})
	}()
	<-calls
	key := metadata.NamespaceKey("team")
	if err := there.Insert(t.Context(), metadata.Namespaces, key, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for version := metadata.Version(0); version == 0; {
		<-calls
		row, err := here.Get(t.Context(), metadata.Namespaces, key, metadata.Quorum)
		if err != nil && core.CodeOf(err) != core.CodeNotFound {
			t.Fatal(err)
		}
		version = row.Version
	}
	for range 3 { // each of these is told by a note
		began := time.Now()
		row, err := there.Get(t.Context(), metadata.Namespaces, key, metadata.Serial)
		if err != nil {
			t.Fatal(err)
		}
		if err := there.Update(t.Context(), metadata.Namespaces, key, row.Version, []byte("y"), 0); err != nil {
			t.Fatal(err)
		}
		<-calls
		t.Logf("told after %s", time.Since(began))
	}
	cancel()
	<-ended
}
