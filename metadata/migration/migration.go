// Package migration owns the copy of all metadata from the embedded store of a stopped cluster into another store, and
// the record in that store which says how far the copy is.
//
//	        Copy            Finish           the first start of a server
//	(none) ─────▶ copying ─────────▶ copied ─────────────────────────────▶ used
//	                                    └────Undo────▶ undone
//
// No server starts on a store while its record says copying or undone.
package migration

import (
	"context"
	"errors"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// State says how far a copy is.
type State string

const (
	Copying State = "copying" // rows are being written, or the copy was interrupted
	Copied  State = "copied"  // all rows are there and were compared; no server has used them
	Used    State = "used"    // a server has started on them: the embedded ones are out of date
	Undone  State = "undone"  // the embedded ones count again
)

// stateText is what errors say of a copy that is finished.
var stateText = map[State]string{Copied: "complete", Used: "in use", Undone: "undone"}

// record is in the settings of the store that is copied to.
type record struct {
	Cluster  string    `json:"cluster"` // id of the cluster whose metadata they are
	State    State     `json:"state"`
	Began    time.Time `json:"began"`
	Position Position  `json:"position"` // all rows up to it are written
	Copier   string    `json:"copier"`   // the call of Copy that may write rows: the last one that began
	Compared bool      `json:"compared"` // a call found the rows to be the same; then its caller sets the embedded ones aside
}

// Call is one call of Copy, and of Finish after it.
type Call struct {
	Cluster core.ID
	Copier  core.ID // of this call alone: an earlier one that still runs writes no more
	// Aside says that the embedded metadata were set aside by an earlier call. They may be out of date, unless that call
	// compared them with this store and no server has used it.
	Aside bool
}

// is refuses a call that is not the one that may write.
func (r *record) is(call Call) error {
	switch {
	case r.Cluster != call.Cluster.String():
		return core.Errorf(core.CodeConflict, "the copy in this keyspace is of another cluster, %s", r.Cluster)
	case r.State != Copying:
		return core.Errorf(core.CodeConflict, "the copy of cluster %s in this keyspace is %s", r.Cluster, stateText[r.State])
	case r.Copier != call.Copier.String():
		return core.Errorf(core.CodeConflict, "another `columba metadata copy` into this keyspace has begun since; this one ends, and changes nothing more")
	}
	return nil
}

const setting = "migration"

var key = metadata.SettingKey(setting)

// Position is a row in the order of a Source: by table, partition and row. The zero Position is before all.
type Position struct {
	Table     string `json:"table,omitempty"`
	Partition string `json:"partition,omitempty"`
	Row       string `json:"row,omitempty"`
}

// PositionOf a row.
func PositionOf(r metadata.Stored) Position {
	return Position{r.Table.Name, r.Row.Key.Partition, r.Row.Key.Row}
}

// Source has the rows. Nobody changes them meanwhile.
type Source interface {
	// Stored calls each for every live row after a position, in order, until it fails.
	Stored(ctx context.Context, table, partition, row string, each func(metadata.Stored) error) error
}

// Target takes the rows. Nobody else uses it meanwhile. Calls without a deadline end like those of a metadata.Store.
type Target interface {
	metadata.Store
	// Parts divides rows into those that Load writes by about one request.
	Parts(rows []metadata.Stored) [][]metadata.Stored
	// Load writes rows as they are: with their versions, timestamps and ends. Writing the same rows again changes nothing.
	Load(ctx context.Context, rows []metadata.Stored) error
	// Page reads some live rows, in any order, from a place that an earlier call answered; nil: from the first one. next
	// is nil when there are no more. A page may be empty.
	Page(ctx context.Context, place []byte) (rows []metadata.Stored, next []byte, err error)
}

// Progress is told to whoever waits for a copy.
type Progress struct {
	Rows  int  // written, or compared, by this call
	Total int  // that this call has to write, or to compare
	Check bool // rows are being compared

	Again  int           // calls that failed and were tried again, of this call of Copy
	Silent time.Duration // no call was answered for so long; 0: less than sayAfter
	Err    error         // of the last call, if Silent
}

// Copy writes all rows of a cluster into a store, and compares them. It goes on where an earlier call was interrupted.
// The store must be empty at first. say is called after each window of rows, and while the store does not answer; its
// calls do not overlap. Errors: CodeConflict (the store has other rows, its copy is finished, or another call has begun
// since), CodeCorrupt (the rows differ), CodeUnavailable (the store answered nothing for maxSilence), and those of
// from.
func Copy(ctx context.Context, from Source, to Target, call Call, say func(Progress)) ([]Count, error) {
	l := newLink(say)
	r, err := begin(ctx, l, to, call)
	if err != nil {
		return nil, err
	}
	p := r.Position
	total, err := count(ctx, from, p)
	if err != nil {
		return nil, err
	}
	l.begin(total, false)
	c := copier{link: l, to: to, call: call}
	if err := from.Stored(ctx, p.Table, p.Partition, p.Row, func(row metadata.Stored) error { return c.add(ctx, row) }); err != nil {
		return nil, err
	}
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	counts, err := compare(ctx, l, from, to)
	if err != nil {
		return nil, err
	}
	return counts, l.change(ctx, to, func(r *record) error {
		r.Compared = true
		return r.is(call)
	})
}

// count is how many rows of the source are after a position.
func count(ctx context.Context, from Source, p Position) (n int, err error) {
	err = from.Stored(ctx, p.Table, p.Partition, p.Row, func(r metadata.Stored) error {
		if !own(r) {
			n++
		}
		return nil
	})
	return n, err
}

// begin makes the record of a copy, or takes over the one that is there: an earlier call that still runs writes no
// more.
func begin(ctx context.Context, l *link, to Target, call Call) (record, error) {
	var r record
	err := l.change(ctx, to, func(there *record) error {
		switch {
		case there.Cluster != call.Cluster.String():
			return core.Errorf(core.CodeConflict, "metadata of another cluster, %s, were copied there; name a keyspace that is empty", there.Cluster)
		case there.State == Undone:
			return core.Errorf(core.CodeConflict, "the metadata of this cluster were copied there before, and that copy is undone; name a keyspace that is empty")
		case there.State != Copying:
			return core.Errorf(core.CodeConflict, "the metadata of this cluster were copied there before, and that copy is %s; start the servers with it", stateText[there.State])
		case call.Aside && !there.Compared:
			return aside()
		}
		there.Copier, there.Compared = call.Copier.String(), call.Aside
		r = *there
		return nil
	})
	switch {
	case err == nil:
		return r, nil
	case core.CodeOf(err) != core.CodeNotFound:
		return r, core.Errorf(core.CodeOf(err), "record of the copy: %w", err)
	case call.Aside:
		return r, aside()
	}
	if err := empty(ctx, l, to); err != nil {
		return r, err
	}
	r = record{Cluster: call.Cluster.String(), State: Copying, Began: time.Now(), Copier: call.Copier.String()}
	err = l.ask(ctx, func(ctx context.Context) error { return metadata.Create(ctx, to, metadata.Settings, key, r) })
	if core.CodeOf(err) == core.CodeExists { // perhaps by this call, whose first answer was lost
		err = l.ask(ctx, func(ctx context.Context) error { return readRecord(ctx, to, call) })
	}
	if core.CodeOf(err) == core.CodeConflict {
		return r, core.Errorf(core.CodeConflict, "another `columba metadata copy` into this keyspace began at the same time; wait for its end, or run this one again to go on in its place")
	}
	if err != nil {
		return r, core.Errorf(core.CodeOf(err), "begin the copy: %w", err)
	}
	// A server may have started since the first look. It calls Use after its first row, too: so one of the two finds the
	// other.
	if err := empty(ctx, l, to); err != nil {
		return r, errors.Join(err, l.ask(ctx, func(ctx context.Context) error { return forget(ctx, to) }))
	}
	return r, nil
}

// forget removes the record of a copy that has written nothing.
func forget(ctx context.Context, to Target) error {
	row, err := to.Get(ctx, metadata.Settings, key, metadata.Serial)
	if err == nil {
		err = to.Delete(ctx, metadata.Settings, key, row.Version)
	}
	if err != nil && core.CodeOf(err) != core.CodeNotFound { // an earlier try may have removed it
		return core.Errorf(core.CodeOf(err), "remove the record of the copy: %w", err)
	}
	return nil
}

// aside refuses embedded metadata that were copied to another store.
func aside() error {
	return core.Errorf(core.CodeConflict, "these metadata were copied to another keyspace, and may be out of date: a server may have used that copy; "+
		"name that keyspace, and take its copy back with --undo before another one")
}

// empty refuses a store that has a row.
func empty(ctx context.Context, l *link, to Target) error {
	return l.stored(ctx, to, func(r metadata.Stored) error {
		if own(r) {
			return nil
		}
		return core.Errorf(core.CodeConflict, "the keyspace is not empty, it has %s %s; name one that is, or drop it (DROP KEYSPACE in cqlsh) and run `columba schema apply` again", r.Table.Name, r.Row.Key.Row)
	})
}

// change changes the record. An error of f is returned as it is.
func change(ctx context.Context, s metadata.Store, f func(*record) error) error {
	_, err := metadata.Change(ctx, s, metadata.Settings, key, func(r *record) error {
		before := *r
		if err := f(r); err != nil {
			return err
		}
		if *r == before {
			return metadata.ErrNoChange
		}
		return nil
	})
	return err
}

// own reports whether a row is the record of a copy, which is not copied.
func own(r metadata.Stored) bool { return r.Table == metadata.Settings && r.Row.Key == key }

// Finish says that a copy is complete: servers may start on it. It can be called again. Errors: CodeConflict,
// CodeUnavailable (the store answered nothing for maxSilence).
func Finish(ctx context.Context, to metadata.Store, call Call) error {
	return newLink(func(Progress) {}).change(ctx, to, func(r *record) error {
		if r.State == Copied && r.Cluster == call.Cluster.String() && r.Copier == call.Copier.String() {
			return nil
		}
		if err := r.is(call); err != nil {
			return err
		}
		r.State = Copied
		return nil
	})
}

// Restored says, after Undo, that the embedded metadata are back: they are not put back by this record once more.
func Restored(ctx context.Context, to metadata.Store) error {
	return change(ctx, to, func(r *record) error {
		r.Compared = r.Compared && r.State != Undone
		return nil
	})
}

// Undo ends a copy that no server has used. It can be called again. set says that the embedded metadata were set aside.
// Errors: CodeConflict, CodeNotFound (there is none).
func Undo(ctx context.Context, to metadata.Store, cluster core.ID, set bool) error {
	return change(ctx, to, func(r *record) error {
		switch {
		case r.Cluster != cluster.String():
			return core.Errorf(core.CodeConflict, "the copy in this keyspace is of another cluster, %s", r.Cluster)
		case r.State == Used:
			return core.Errorf(core.CodeConflict, "a server has started on the copy: what changed since is there only, and the embedded metadata are out of date; start the servers with --metadata cassandra://…")
		case set && !r.Compared:
			return aside()
		}
		r.State = Undone
		return nil
	})
}

// Use is for a server that starts, before it reads anything and after it has written its first row: CodeConflict unless
// the store may be used. From then on the copy cannot be undone. A store that was not copied to is fine.
func Use(ctx context.Context, s metadata.Store) error {
	err := change(ctx, s, func(r *record) error {
		switch r.State {
		case Copied:
			r.State = Used
		case Copying:
			return core.Errorf(core.CodeConflict, "the copy of the metadata of cluster %s into this keyspace is not complete; run `columba metadata copy` again", r.Cluster)
		case Undone:
			return core.Errorf(core.CodeConflict, "the copy of the metadata of cluster %s into this keyspace was undone; start the server with the embedded metadata", r.Cluster)
		}
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}
