package cassandra

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// entryGrace is how old an index entry is before a listing may remove it because its row is not there. The row may be
// on its way until then: a call ends after maxCall, and a node drops what it has not begun after seconds.
const entryGrace = time.Hour

// maxRemovals bounds the entries that one listing removes.
const maxRemovals = 16

// entry says that an attempt wanted to insert a row. Each attempt has its own entry. So the removal of an entry never
// hides the entry of a later attempt, whatever the clocks say.
type entry struct {
	row, attempt string
	at           int64 // timestamp in µs: a removal of the entry that was read has the next one
}

// begun is when the attempt began, by the clock of its process.
func (e entry) begun() time.Time {
	id, err := core.IDFromBytes([]byte(e.attempt))
	if err != nil {
		return time.Time{}
	}
	return id.Time()
}

// superfluous reports whether nobody needs an entry of a row in that state, read at SERIAL.
//
//  1. The row was inserted by this attempt, and lives: the entry is needed.
//  2. It was inserted by this attempt, and deleted: the attempt cannot be applied again.
//  3. Otherwise the attempt may be under way, unless the entry is old.
func (e entry) superfluous(row state, now time.Time) bool {
	if row.created == e.attempt {
		return !row.live
	}
	return now.Sub(e.begun()) > entryGrace
}

// entries are a part of an index in the order of rows. If more, there are others after row until.
type entries struct {
	list  []entry
	until string
	more  bool
}

// merge puts the entries of buckets in order.
func merge(parts map[int][]entry, perBucket int) (m entries) {
	m.list, m.until, m.more = mergeBuckets(parts, perBucket, func(e entry) string { return e.row },
		func(a, b entry) int {
			return cmp.Or(strings.Compare(a.row, b.row), strings.Compare(a.attempt, b.attempt))
		})
	return m
}

// addEntry names a row in the index before it is inserted. CodeUnavailable: the row is not inserted then.
func (s *Store) addEntry(ctx context.Context, t metadata.Table, partition string, e entry) error {
	args := []any{s.name(t), []byte(partition), bucketOf(e.row), []byte(e.row), []byte(e.attempt), e.at, e.at}
	if _, err := s.session.write(ctx, gocql.Quorum, []statement{{s.indexText(addEntry), args}}); err != nil {
		return writeError(ctx, err, false)
	}
	return nil
}

func (s *Store) removeEntry(ctx context.Context, t metadata.Table, partition string, e entry) error {
	args := []any{e.at + 1, s.name(t), []byte(partition), bucketOf(e.row), []byte(e.row), []byte(e.attempt)}
	_, err := s.session.write(ctx, gocql.Quorum, []statement{{s.indexText(removeEntry), args}})
	return err
}

// listEntries reads a part of the index of a partition, of at least about want rows.
func (s *Store) listEntries(ctx context.Context, t metadata.Table, partition, after string, want int, c metadata.Consistency) (entries, error) {
	perBucket := min(want/buckets*2+8, maxPerBucket)
	parts := map[int][]entry{}
	list := statement{s.indexText(listEntries), []any{s.name(t), []byte(partition), allBuckets, []byte(after), perBucket}}
	level := gocql.Quorum
	if c == metadata.One {
		level = gocql.One
	}
	err := s.session.read(ctx, level, 0, list, func(rows gocql.Scanner) (bool, error) {
		var bucket int
		var row, attempt []byte
		var at int64
		err := rows.Scan(&bucket, &row, &attempt, &at)
		parts[bucket] = append(parts[bucket], entry{string(row), string(attempt), at})
		return true, err
	})
	if err != nil {
		return entries{}, readError(ctx, err)
	}
	return merge(parts, perBucket), nil
}

// listIndex lists rows by the index. It reads the rows themselves: the index names rows that are not there.
func (s *Store) listIndex(ctx context.Context, t metadata.Table, partition, after string, c metadata.Consistency, p *page) error {
	removals := 0
	for {
		part, err := s.listEntries(ctx, t, partition, after, p.limit+1-len(p.rows), c)
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(byRow(part.list), func(g []entry) bool { return !p.wants(g[0].row) })
		for len(rest) > 0 {
			n := min(len(rest), p.limit+1-len(p.rows), sideBySideRows(p.largest))
			full, err := s.readNamed(ctx, t, partition, rest[:n], c, p, &removals)
			if err != nil || full {
				return err
			}
			rest = rest[n:]
		}
		if !part.more {
			return nil
		}
		after = part.until
	}
}

// byRow groups entries, which are in order, by their rows.
func byRow(list []entry) (groups [][]entry) {
	for i, e := range list {
		if i == 0 || list[i-1].row != e.row {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], e)
	}
	return groups
}

// readNamed reads the rows that groups of entries name, and adds those that live to the page. It reports
// whether the page is full.
func (s *Store) readNamed(ctx context.Context, t metadata.Table, partition string, groups [][]entry, c metadata.Consistency, p *page, removals *int) (full bool, err error) {
	keys := make([]metadata.Key, len(groups))
	for i, group := range groups {
		keys[i] = metadata.Key{Partition: partition, Row: group[0].row}
	}
	states, err := s.statesMost(ctx, t, keys, c, sideBySideRows(p.largest))
	if err != nil {
		return false, err
	}
	for i, group := range groups {
		if c != metadata.One && *removals < maxRemovals {
			*removals += s.clean(ctx, t, partition, group, states[i], c == metadata.Serial)
		}
		if states[i].live && !p.add(states[i].row(keys[i])) {
			return true, nil
		}
	}
	return false, nil
}

// clean removes those entries of a row that nobody needs, and answers how many. If it fails, the next listing does it.
func (s *Store) clean(ctx context.Context, t metadata.Table, partition string, group []entry, row state, decisive bool) (removed int) {
	now := time.Now()
	for _, e := range group {
		if !e.superfluous(row, now) {
			continue
		}
		if !decisive {
			var err error
			if row, err = s.state(ctx, t, metadata.Key{Partition: partition, Row: e.row}, metadata.Serial); err != nil {
				return removed
			}
			if decisive = true; !e.superfluous(row, now) {
				continue
			}
		}
		if s.removeEntry(ctx, t, partition, e) != nil {
			return removed
		}
		removed++
	}
	return removed
}
