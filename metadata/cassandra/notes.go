package cassandra

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	tellAnyway = 30 * time.Second // about the longest time between two calls of a watch
	noteTime   = 2 * time.Second  // of one read or write of notes
	noteTTL    = time.Hour        // a process that has ended leaves its notes behind
	// notePause is the time from a note to the next one of the same place. Polls are seconds apart, so a few notes a
	// second tell as much as one for each of many changes, and each is a write on all replicas.
	notePause  = 100 * time.Millisecond
	maxWriters = 256 // processes of which a poll remembers notes; below it, none is forgotten
)

// noted are the tables whose changes leave notes, see docs/adr/0064: those that processes watch. A watch of another
// table hears of changes by other processes only every tellAnyway.
var noted = map[string]bool{metadata.Queues.Name: true, metadata.Namespaces.Name: true}

// place is what a watch is about.
type place struct {
	table     metadata.Table
	partition string
}

// notes are those that this store writes. One write for each place is under way at a time, or the pause after it.
type notes struct {
	mu      sync.Mutex
	writing map[place]bool // true: a change came after the last write began
	last    int64
}

// begin reports whether the caller has to write a note. Otherwise the one who is writing does it once more.
func (n *notes) begin(p place) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writing == nil {
		n.writing = map[place]bool{}
	}
	_, busy := n.writing[p]
	n.writing[p] = busy
	return !busy
}

// again reports whether a change came since the last write began.
func (n *notes) again(p place) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writing[p] {
		n.writing[p] = false
		return true
	}
	delete(n.writing, p)
	return false
}

// at is the timestamp of a note in µs: above that of each note before.
func (n *notes) at(now time.Time) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = max(n.last+1, now.UnixMicro())
	return n.last
}

// tell wakes the watches of this store after a change ended with err, and leaves a note for those of others. A change
// that may have been made counts as made. The call that made the change must not have ended.
func (s *Store) tell(t metadata.Table, partition string, err error) {
	if err != nil && core.CodeOf(err) != core.CodeUnknown {
		return
	}
	s.notifier.Notify(t, partition)
	p := place{t, partition}
	if !noted[t.Name] || !s.notes.begin(p) {
		return
	}
	s.life.calls.Go(func() { // Close waits for it. The caller does not: its change is made
		for more := true; more; more = s.notes.again(p) {
			s.writeNote(p)
			s.rest(notePause)
		}
	})
}

// rest returns after d, or when the store closes.
func (s *Store) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// writeNote writes that something has changed. Each process has a note of its own: notes of others, whose clocks may be
// ahead, do not hide it.
func (s *Store) writeNote(p place) {
	ctx, cancel := context.WithTimeout(s.ctx, noteTime)
	defer cancel()
	at := s.notes.at(time.Now())
	args := []any{s.name(p.table), []byte(p.partition), []byte(s.writer), at, at, seconds(noteTTL)}
	if _, err := s.session.write(ctx, gocql.One, []statement{{s.noteText(writeNote), args}}); err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Info("other processes hear late of a change of metadata: no note of it could be written to Cassandra",
			"table", p.table.Name, "late", tellAnyway, "error", err)
	}
}

// readNotes reads the latest note of each process.
func (s *Store) readNotes(ctx context.Context, p place) (latest map[string]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	ctx, end, err := s.begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer end()
	latest = map[string]int64{}
	list := statement{s.noteText(readNotes), []any{s.name(p.table), []byte(p.partition)}}
	err = s.session.read(ctx, gocql.One, maxWriters, list, func(rows gocql.Scanner) (bool, error) {
		var writer []byte
		var at int64
		err := rows.Scan(&writer, &at)
		latest[string(writer)] = at
		return true, err
	})
	return latest, err
}

// sightings are the latest notes that a poll has seen, by process.
type sightings map[string]int64

// take reports whether one of the notes is later than those seen before. A node that lacks notes tells nothing: they
// may be seen at another one again.
func (s sightings) take(latest map[string]int64) (news bool) {
	for writer, at := range latest {
		if at > s[writer] {
			s[writer], news = at, true
		}
	}
	if len(s) > maxWriters {
		for writer := range s {
			if _, ok := latest[writer]; !ok {
				delete(s, writer)
			}
		}
	}
	return news
}

// polls look for changes by other processes: one for each place that is watched.
type polls struct {
	mu   sync.Mutex
	open map[place]*poll
}

type poll struct {
	watches int
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// follow has changes of a place told to the watches of this store until leave is called, which every caller must do.
func (s *Store) follow(p place) (leave func()) {
	s.polls.mu.Lock()
	defer s.polls.mu.Unlock()
	one := s.polls.open[p]
	if one == nil {
		ctx, stop := context.WithCancel(context.Background())
		one = &poll{stop: stop}
		one.done.Go(func() { s.poll(ctx, p) })
		if s.polls.open == nil {
			s.polls.open = map[place]*poll{}
		}
		s.polls.open[p] = one
	}
	one.watches++
	return func() { s.leave(p, one) }
}

// leave ends the poll when nobody watches any more.
func (s *Store) leave(p place, one *poll) {
	s.polls.mu.Lock()
	one.watches--
	last := one.watches == 0
	if last {
		delete(s.polls.open, p)
	}
	s.polls.mu.Unlock()
	if last {
		one.stop()
		one.done.Wait()
	}
}

// poll runs until ctx ends. All that the first reading finds is news: a change may have come after the watch's first
// call, and before the reading.
func (s *Store) poll(ctx context.Context, p place) {
	seen := sightings{}
	anyway := time.Now().Add(spread(tellAnyway))
	timer := time.NewTimer(spread(s.cfg.Poll))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		news := false
		if noted[p.table.Name] {
			latest, err := s.readNotes(ctx, p)
			news = err == nil && seen.take(latest) // after an error the next reading finds the same notes, or later ones
		}
		if now := time.Now(); news || !now.Before(anyway) {
			s.notifier.Notify(p.table, p.partition)
			anyway = now.Add(spread(tellAnyway))
		}
		timer.Reset(spread(s.cfg.Poll))
	}
}

// spread is a time between a half of d and d.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(max(d/2, 1)) }

// Watch implements metadata.Store. It tells of changes by this store at once, and a second time when its note is seen:
// a reader at One may find the row of before the first time. It tells of changes by others within Config.Poll, and of
// all that it may have missed about every 30 s.
func (s *Store) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if err := metadata.CheckList(t, partition, "", 1); err != nil {
		return err
	}
	defer s.follow(place{t, partition})()
	return s.notifier.Watch(ctx, s.ctx.Done(), t, partition, changed)
}
