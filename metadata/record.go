package metadata

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/columbamq/columba/core"
)

// Record is a row with its value decoded.
type Record[T any] struct {
	Key     Key
	Value   T
	Version Version   // CAS tables
	Written time.Time // Put tables
}

// Read reads and decodes one row; CodeNotFound when there is none, CodeCorrupt when it is not a T.
func Read[T any](ctx context.Context, s Store, t Table, k Key, c Consistency) (T, Version, error) {
	row, err := s.Get(ctx, t, k, c)
	if err != nil {
		var zero T
		return zero, 0, err
	}
	v, err := decode[T](t, row)
	return v, row.Version, err
}

// Write encodes v and puts it, see Store.Put. Put tables.
func Write[T any](ctx context.Context, s Store, t Table, k Key, v T, at time.Time, ttl time.Duration, c Consistency) error {
	value, err := encode(t, k, v)
	if err != nil {
		return err
	}
	return s.Put(ctx, t, k, value, at, ttl, c)
}

func decode[T any](t Table, row Row) (T, error) {
	var v T
	if err := json.Unmarshal(row.Value, &v); err != nil {
		return v, core.Errorf(core.CodeCorrupt, "%s %s cannot be read: %w", t.Name, clip(row.Key.Row), err)
	}
	return v, nil
}

func encode[T any](t Table, k Key, v T) ([]byte, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return nil, core.Errorf(core.CodeBadArgument, "%s %s cannot be stored: %w", t.Name, clip(k.Row), err)
	}
	return value, nil
}

// attemptField is in every value that Create and Change write, a new one each time. It makes a change known again after
// a lost answer, also when two writers store equal records; decoding a record passes over it.
const (
	attemptName  = "_attempt"
	attemptField = `"` + attemptName + `":"`
)

// creation is in front of the attempts of Create: a row that has one was not changed since it was created.
const creation = "create-"

// encodeAttempt is v as a JSON object that ends in the attempt.
func encodeAttempt[T any](t Table, k Key, v T, attempt string) ([]byte, error) {
	value, err := encode(t, k, v)
	if err != nil {
		return nil, err
	}
	if len(value) < 2 || value[0] != '{' {
		return nil, core.Errorf(core.CodeBadArgument, "%s %s cannot be stored: a record is a JSON object", t.Name, clip(k.Row))
	}
	value = value[:len(value)-1]
	if len(value) > 1 {
		value = append(value, ',')
	}
	value = append(value, attemptField...)
	value = append(value, attempt...)
	return append(value, `"}`...), nil
}

// encodeChange is encodeAttempt of next, which was made of the current value of a row, with what a newer version has
// written into the row and a T does not have: members of the object, and all within a member that is not changed.
func encodeChange[T any](t Table, row Row, current, next T, attempt string) ([]byte, error) {
	value, err := encodeAttempt(t, row.Key, next, attempt)
	if err != nil {
		return nil, err
	}
	known, err := encode(t, row.Key, current)
	if err != nil || bytes.Equal(withoutAttempt(row.Value), withoutAttempt(known)) {
		return value, err
	}
	members, err := changed(row.Value, known, value)
	if err != nil {
		return nil, core.Errorf(core.CodeCorrupt, "%s %s cannot be changed: %w", t.Name, clip(row.Key.Row), err)
	}
	return encodeAttempt(t, row.Key, members, attempt)
}

// changed has the members of a stored object after a change. known are those that the change has read of it, and next
// those that it has made of them.
func changed(stored, known, next []byte) (map[string]json.RawMessage, error) {
	var all [3]map[string]json.RawMessage
	for i, object := range [][]byte{stored, known, next} {
		if err := json.Unmarshal(object, &all[i]); err != nil {
			return nil, err
		}
	}
	out, read, made := all[0], all[1], all[2]
	if out == nil { // null
		out = make(map[string]json.RawMessage)
	}
	for name := range read {
		if _, ok := made[name]; !ok {
			delete(out, name)
		}
	}
	for name, value := range made {
		if old, ok := read[name]; out[name] == nil || !ok || !bytes.Equal(old, value) {
			out[name] = value
		}
	}
	delete(out, attemptName)
	return out, nil
}

// asCreated reports whether a value is one that Create wrote.
func asCreated(value []byte) bool {
	i := bytes.LastIndex(value, []byte(attemptField))
	return i >= 0 && bytes.HasPrefix(value[i+len(attemptField):], []byte(creation))
}

// sameRecord reports whether two values written by encodeAttempt differ in the attempt alone.
func sameRecord(a, b []byte) bool { return bytes.Equal(withoutAttempt(a), withoutAttempt(b)) }

func withoutAttempt(value []byte) []byte {
	if i := bytes.LastIndex(value, []byte(attemptField)); i > 0 {
		return bytes.TrimSuffix(value[:i], []byte(","))
	}
	return bytes.TrimSuffix(value, []byte("}"))
}

// NewRow encodes v as a row for Store.PutAll. Put tables.
func NewRow[T any](t Table, k Key, v T, at time.Time) (Row, error) {
	value, err := encode(t, k, v)
	return Row{Key: k, Value: value, Written: at}, err
}

// Reading is the version of a row as it was read from embedded metadata. Versions of one row compare only within a run
// of their holder: after the holder has changed, the metadata may be an older copy of those before, in which the row
// has a lower version.
type Reading struct {
	Run     core.RunID // of the holder; zero: the metadata are not embedded
	Version Version
}

// Before reports whether the row was read before a reading that is known.
func (r Reading) Before(known Reading) bool { return r.Run == known.Run && r.Version < known.Version }

// RowsGetter is a Store that reads many rows at little more than the cost of one.
type RowsGetter interface {
	// GetRows reads rows of one table, in the order of keys; rows that do not exist are left out.
	GetRows(ctx context.Context, t Table, keys []Key, c Consistency) ([]Row, error)
}

// GetRows reads rows of one table from any store, in the order of keys; rows that do not exist are left out. Errors are
// those of Get.
func GetRows(ctx context.Context, s Store, t Table, keys []Key, c Consistency) ([]Row, error) {
	if many, ok := s.(RowsGetter); ok {
		return many.GetRows(ctx, t, keys, c)
	}
	rows := make([]Row, 0, len(keys))
	for _, k := range keys {
		row, err := s.Get(ctx, t, k, c)
		switch {
		case err == nil:
			rows = append(rows, row)
		case core.CodeOf(err) != core.CodeNotFound:
			return nil, err
		}
	}
	return rows, nil
}

// VersionInserter is a Store that says which version it gave to a row that it inserted. The next change of the row need
// not read it.
type VersionInserter interface {
	// InsertVersion is Insert, and returns the version that the row had from it; 0: it is not known.
	InsertVersion(ctx context.Context, t Table, k Key, value []byte) (Version, error)
}

// InsertVersion inserts a row into any store. The version is 0 where the store does not say it.
func InsertVersion(ctx context.Context, s Store, t Table, k Key, value []byte) (Version, error) {
	if v, ok := s.(VersionInserter); ok {
		return v.InsertVersion(ctx, t, k, value)
	}
	return 0, s.Insert(ctx, t, k, value)
}

// Decode decodes the value of a row; CodeCorrupt when it is not a T.
func Decode[T any](t Table, row Row) (T, error) { return decode[T](t, row) }

// ReadRows is GetRows with the records of the rows. Errors: those of Get, and CodeCorrupt for a row that is no T.
func ReadRows[T any](ctx context.Context, s Store, t Table, keys []Key, c Consistency) ([]T, error) {
	rows, err := GetRows(ctx, s, t, keys, c)
	if err != nil {
		return nil, err
	}
	records := make([]T, len(rows))
	for i, row := range rows {
		if records[i], err = Decode[T](t, row); err != nil {
			return nil, err
		}
	}
	return records, nil
}
