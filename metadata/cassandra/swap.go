package cassandra

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// markerTTL is how long the marker of a deleted row is kept. Until then a row that is inserted again gets a higher
// version whatever the clocks say; later its version is higher unless a clock is a day behind. It is far above the
// life of a request, so that no transaction that was sent before the deletion takes effect after the marker is gone.
const markerTTL = 24 * time.Hour

// newAttempt is the id of one call of Insert, Update or Delete.
func newAttempt(now time.Time) string {
	id := core.NewID(now)
	return string(id[:])
}

// own is a value that goes to Cassandra as an empty blob when it is nil: null would be no cell.
func own(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// Insert implements metadata.Store. A row that was deleted within markerTTL gets a version above its marker's.
func (s *Store) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	_, err := s.InsertVersion(ctx, t, k, value)
	return err
}

// InsertVersion implements metadata.VersionInserter.
func (s *Store) InsertVersion(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) (metadata.Version, error) {
	ctx, end, err := s.begin(ctx, metadata.CheckWrite(t, metadata.RuleCAS, k, value))
	if err != nil {
		return 0, err
	}
	defer end()
	now, indexed := time.Now(), layoutOf(t).listed == byIndex
	mine := newAttempt(now)
	e := entry{k.Row, mine, now.UnixMicro()}
	if indexed {
		if err := s.addEntry(ctx, t, k.Partition, e); err != nil {
			return 0, err
		}
	}
	version, err := s.insert(ctx, t, k, value, mine)
	if indexed && core.CodeOf(err) == core.CodeExists {
		s.removeEntry(ctx, t, k.Partition, e) // if it fails, a listing removes the entry later
	}
	return version, err
}

// insert returns the version that the row has from it, if there is no error.
func (s *Store) insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, mine string) (metadata.Version, error) {
	base, first, attempt := int64(0), time.Now().UnixMicro(), []byte(mine)
	err := s.swap(ctx, t, k, func() statement {
		args := append([]any{first, attempt, attempt, own(value)}, s.of(t, k)...)
		if base == 0 {
			return statement{s.text(insertCAS, t), args}
		}
		return statement{s.text(insertOver, t), append(args, base, attempt)}
	}, func(found state, lost bool) (verdict, core.Code) {
		v, code := judgeInsert(found, base, first, mine, lost)
		switch {
		case v == over:
			base, first = found.version, max(first, found.version+1)
		case v == retry && found.none():
			base = 0
		}
		return v, code
	})
	return metadata.Version(first), err
}

// Update implements metadata.Store. To write all cells of a row that is to end it reads the row first, for who inserted
// it. A row that was to end, and is updated for ever, forgets that at its old end: nobody asks for it in tables without
// a listing, once no request of that time is under way.
func (s *Store) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	ctx, end, err := s.begin(ctx, metadata.CheckUpdate(t, k, value, ttl))
	if err != nil {
		return err
	}
	defer end()
	mine, at := newAttempt(time.Now()), int64(old)
	var row state
	if ttl > 0 {
		if row, err = s.state(ctx, t, k, metadata.Serial); err != nil {
			return err
		}
		if v, code := judgeChange(row, at, mine, false); v == refused {
			return refusal(t, k, row, code)
		}
	}
	return s.swap(ctx, t, k, func() statement {
		if ttl > 0 {
			args := append([]any{seconds(ttl), at + 1, row.again, []byte(row.created), []byte(mine), own(value)}, s.of(t, k)...)
			return statement{s.text(updateToEnd, t), append(args, at, []byte(mine))}
		}
		args := append([]any{at + 1, []byte(mine), own(value)}, s.of(t, k)...)
		return statement{s.text(updateCAS, t), append(args, at, []byte(mine))}
	}, func(found state, lost bool) (verdict, core.Code) { return judgeChange(found, at, mine, lost) })
}

// Delete implements metadata.Store. It leaves a marker with version old+1. The marker keeps who inserted the row, so
// it reads the row first.
func (s *Store) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	ctx, end, err := s.begin(ctx, metadata.CheckWrite(t, metadata.RuleCAS, k, nil))
	if err != nil {
		return err
	}
	defer end()
	mine, at := newAttempt(time.Now()), int64(old)
	row, err := s.state(ctx, t, k, metadata.Serial)
	if err != nil {
		return err
	}
	if v, code := judgeChange(row, at, mine, false); v == refused {
		return refusal(t, k, row, code)
	}
	return s.swap(ctx, t, k, func() statement {
		args := append([]any{int(markerTTL.Seconds()), at + 1, row.again, []byte(row.created), []byte(mine)}, s.of(t, k)...)
		return statement{s.text(deleteCAS, t), append(args, at, []byte(mine))}
	}, func(found state, lost bool) (verdict, core.Code) { return judgeChange(found, at, mine, lost) })
}

// swap does one change of a CAS row. It sends the transaction that next makes until judge says what became of it. When
// the answer of a transaction is lost, it reads the row at SERIAL: that ends transactions which are half done.
func (s *Store) swap(ctx context.Context, t metadata.Table, k metadata.Key, next func() statement, judge func(found state, lost bool) (verdict, core.Code)) (err error) {
	defer func() { s.tell(t, k.Partition, err) }()
	lost := false
	var pace pacer
	for {
		applied, found, err := s.session.swap(ctx, next())
		switch {
		case err == nil && applied:
			return nil
		case err != nil && untouched(err, true):
			return writeError(ctx, err, lost)
		case err != nil:
			lost = true
			if found, err = s.readBack(ctx, t, k, err); err != nil {
				return err
			}
		}
		v, code := judge(found, lost)
		switch v {
		case done:
			return nil
		case refused:
			return refusal(t, k, found, code)
		case unsure:
			return core.Errorf(code, "the change of %s %s may have been stored, and covered by others", t.Name, k.Row)
		case over:
			lost = false // the earlier try was not applied, and cannot be any more
			continue
		}
		if err := pace.wait(ctx); err != nil {
			return writeError(ctx, err, lost)
		}
	}
}

// readBack reads a row at SERIAL until there is an answer or ctx ends; cause is why that is needed.
func (s *Store) readBack(ctx context.Context, t metadata.Table, k metadata.Key, cause error) (state, error) {
	var pace pacer
	for {
		found, err := s.state(ctx, t, k, metadata.Serial)
		if err == nil {
			return found, nil
		}
		if core.CodeOf(err) != core.CodeUnavailable || pace.wait(ctx) != nil {
			return state{}, writeError(ctx, cause, true)
		}
	}
}

func refusal(t metadata.Table, k metadata.Key, found state, code core.Code) error {
	switch code {
	case core.CodeNotFound:
		return metadata.NoRow(t, k)
	case core.CodeExists:
		return core.Errorf(code, "%s %s exists", t.Name, k.Row)
	}
	return core.Errorf(code, "%s %s is at version %d, not at the one to change", t.Name, k.Row, found.version)
}

// state reads what Cassandra has of a CAS row; the zero state when there is nothing. CodeUnavailable. It tries again
// when the read met transactions of others.
func (s *Store) state(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (state, error) {
	get := statement{s.text(getCAS, t), s.of(t, k)}
	var pace pacer
	for {
		var found state
		began := time.Now()
		err := s.session.read(ctx, readAt(t, c), 1, get, func(rows gocql.Scanner) (more bool, err error) {
			return false, found.scan(rows)
		})
		if err == nil {
			return found, nil
		}
		if c != metadata.Serial || !contended(err, time.Since(began)) || pace.wait(ctx) != nil {
			return state{}, readError(ctx, err)
		}
	}
}

// scan reads the columns before, and casCells.
func (s *state) scan(rows gocql.Scanner, before ...any) error {
	var created, attempt []byte
	err := rows.Scan(append(before, &s.version, &s.live, &s.again, &created, &attempt, &s.value)...)
	s.created, s.attempt = string(created), string(attempt)
	return err
}
