package metadata

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/core"
)

// ErrNoChange, returned by the function of a Change, means that the row has the wanted value already: nothing is
// written.
var ErrNoChange = errors.New("no change")

// Bounds of the pause between two tries of one change.
const (
	minPause = time.Millisecond
	maxPause = 250 * time.Millisecond
)

// Create inserts v. Errors: CodeExists when another row is there, CodeUnavailable (not created), CodeUnknown when ctx
// ended before it was known. A lost answer is resolved by reading back. CAS tables; T is a JSON object.
func Create[T any](ctx context.Context, s Store, t Table, k Key, v T) error {
	_, err := CreateRow(ctx, s, t, k, v)
	return err
}

// CreateRow is Create, and returns the row that it has made, for ChangeFrom. Its version is 0 if the store does not say
// it.
func CreateRow[T any](ctx context.Context, s Store, t Table, k Key, v T) (Row, error) {
	ctx, cancel := Deadline(ctx)
	defer cancel()
	value, err := encodeAttempt(t, k, v, creation+core.NewID(time.Now()).String())
	if err != nil {
		return Row{}, err
	}
	asked := false // an earlier try may have been done
	for pause := minPause; ; pause = nextPause(pause) {
		version, err := InsertVersion(ctx, s, t, k, value)
		switch core.CodeOf(err) {
		case core.CodeUnknown, core.CodeDeadline:
		case core.CodeExists:
			if !asked {
				return Row{}, err
			}
		default:
			return Row{Key: k, Value: value, Version: version}, sure(err, asked)
		}
		asked = true
		row, readErr := readBack(ctx, s, t, k)
		switch {
		case readErr == nil && bytes.Equal(row.Value, value):
			return row, nil
		case readErr == nil && asCreated(row.Value):
			return Row{}, core.Errorf(core.CodeExists, "%s %s exists", t.Name, clip(k.Row))
		case readErr == nil:
			return Row{}, unknown(t, k, errors.New("it was changed since"))
		case core.CodeOf(readErr) != core.CodeNotFound:
			return Row{}, unknown(t, k, readErr)
		}
		if err := wait(ctx, pause); err != nil {
			return Row{}, unknown(t, k, err)
		}
	}
}

// Change changes a CAS row. It reads the row, calls change to alter the value, and stores the value at the version that
// it read. On a conflict it begins again, with growing pauses, until ctx ends. It returns the stored value. change may
// run several times and must not keep the pointer. An error of change ends the Change and is returned unchanged, with
// the value read; ErrNoChange counts as success. Other errors: CodeNotFound, CodeUnavailable (not changed), CodeUnknown
// (it may be changed). T is a JSON object. Members that T does not have stay, because a newer version has stored them;
// so does all within a member that change leaves as it is.
//
// The row is first read at Quorum, which costs no round of Paxos: that an older version was read shows when the value
// is stored. A Change that would end without a write reads the row again at Serial.
func Change[T any](ctx context.Context, s Store, t Table, k Key, change func(*T) error) (T, error) {
	return changeRow(ctx, s, t, Row{Key: k}, 0, change)
}

// ChangeFrom is Change of a row that the caller has read or made, and that others may have changed since. It begins
// with that row in place of the reading at Quorum, unless its version is 0.
func ChangeFrom[T any](ctx context.Context, s Store, t Table, known Row, change func(*T) error) (T, error) {
	return changeRow(ctx, s, t, known, 0, change)
}

// ChangeFor is Change, and the row is gone when ttl is over; 0 = never. It stores a value that is the same, too, unless
// change answers ErrNoChange: then ttl begins anew.
func ChangeFor[T any](ctx context.Context, s Store, t Table, k Key, ttl time.Duration, change func(*T) error) (T, error) {
	return changeRow(ctx, s, t, Row{Key: k}, ttl, change)
}

// changeRow is ChangeFor, and begins with a row that is known, unless its version is 0.
func changeRow[T any](ctx context.Context, s Store, t Table, known Row, ttl time.Duration, change func(*T) error) (T, error) {
	ctx, cancel := Deadline(ForChange(ctx))
	defer cancel()
	var zero T
	k, at := known.Key, Quorum
	for pause := minPause; ; pause = nextPause(pause) {
		row, err := known, error(nil)
		if known.Version == 0 || at == Serial {
			row, err = s.Get(ctx, t, k, at)
		}
		if core.CodeOf(err) == core.CodeNotFound && at != Serial {
			at = Serial
			continue
		}
		if err != nil {
			return zero, err
		}
		current, next, err := altered(t, row, change)
		value, same := row.Value, errors.Is(err, ErrNoChange)
		if err == nil {
			value, err = encodeChange(t, row, current, next, core.NewID(time.Now()).String())
			same = err == nil && ttl == 0 && sameRecord(row.Value, value)
		}
		switch {
		case (same || err != nil) && at != Serial:
			at = Serial
			continue
		case same:
			return current, nil
		case err != nil:
			return current, err
		}
		stored, err := update(ctx, s, t, k, row.Version, value, ttl)
		if stored {
			return next, nil
		}
		if err != nil {
			return current, err
		}
		at = Serial
		if err := wait(ctx, pause); err != nil {
			return current, core.Errorf(core.CodeUnavailable, "%s %s could not be changed in time: %w", t.Name, clip(k.Row), err)
		}
	}
}

// altered is the value of a row, and what change makes of its own copy of it.
func altered[T any](t Table, row Row, change func(*T) error) (current, next T, err error) {
	if current, err = decode[T](t, row); err == nil {
		next, err = decode[T](t, row)
	}
	if err != nil {
		return current, next, err
	}
	return current, next, change(&next)
}

// Delete removes a row at version old; a lost answer is resolved by reading back, and a row that is gone then counts as
// removed. Errors: CodeNotFound, CodeConflict, CodeUnavailable (not removed), CodeUnknown. CAS tables.
func Delete(ctx context.Context, s Store, t Table, k Key, old Version) error {
	ctx, cancel := Deadline(ctx)
	defer cancel()
	asked := false
	for pause := minPause; ; pause = nextPause(pause) {
		err := s.Delete(ctx, t, k, old)
		switch core.CodeOf(err) {
		case core.CodeUnknown, core.CodeDeadline:
		case core.CodeNotFound:
			if asked {
				return nil
			}
			return err
		default:
			return sure(err, asked)
		}
		asked = true
		row, readErr := readBack(ctx, s, t, k)
		switch {
		case core.CodeOf(readErr) == core.CodeNotFound:
			return nil
		case readErr != nil:
			return unknown(t, k, readErr)
		case row.Version != old:
			return unknown(t, k, errors.New("it was changed since"))
		}
		if err := wait(ctx, pause); err != nil {
			return unknown(t, k, err)
		}
	}
}

// update stores value over version old; stored is false without an error when another change was first. After a lost
// answer it tries the same value again: the store may still do the first try, and a different value would then be a
// second change.
func update(ctx context.Context, s Store, t Table, k Key, old Version, value []byte, ttl time.Duration) (stored bool, err error) {
	asked := false
	for pause := minPause; ; pause = nextPause(pause) {
		err := s.Update(ctx, t, k, old, value, ttl)
		switch code := core.CodeOf(err); {
		case err == nil:
			return true, nil
		case code == core.CodeConflict && !asked:
			return false, nil
		case code == core.CodeUnknown || code == core.CodeDeadline || code == core.CodeConflict:
		default:
			return false, sure(err, asked)
		}
		asked = true
		row, readErr := readBack(ctx, s, t, k)
		switch {
		case readErr != nil:
			return false, unknown(t, k, readErr)
		case bytes.Equal(row.Value, value):
			return true, nil
		case row.Version == old+1:
			return false, nil
		case row.Version != old:
			// The change to old+1 may have been this one, and others after it have covered it.
			return false, unknown(t, k, errors.New("it was changed again since"))
		}
		if err := wait(ctx, pause); err != nil {
			return false, unknown(t, k, err)
		}
	}
}

// readBack reads a row Serial until there is an answer or ctx ends.
func readBack(ctx context.Context, s Store, t Table, k Key) (Row, error) {
	for pause := minPause; ; pause = nextPause(pause) {
		row, err := s.Get(ctx, t, k, Serial)
		if err == nil || core.CodeOf(err) == core.CodeNotFound {
			return row, err
		}
		if core.CodeOf(err).Class() == core.ClassFatal || wait(ctx, pause) != nil {
			return Row{}, err
		}
	}
}

// sure turns "nothing was done" of a later try into "unknown" when an earlier one may have been done.
func sure(err error, asked bool) error {
	if err == nil || !asked {
		return err
	}
	return core.Errorf(core.CodeUnknown, "the outcome is not known: %w", err)
}

func unknown(t Table, k Key, cause error) error {
	return core.Errorf(core.CodeUnknown, "the change of %s %s may or may not be stored: %w", t.Name, clip(k.Row), cause)
}

func nextPause(pause time.Duration) time.Duration { return min(2*pause, maxPause) }

// wait sleeps about that long; the error is why ctx ended.
func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
