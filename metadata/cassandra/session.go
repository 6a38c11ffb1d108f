package cassandra

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/metadata"
)

// session is what the store needs of a connection to Cassandra. Errors are those of the driver.
type session interface {
	// write stores statements of one partition together; touched: it failed, and a node may have stored it. Doing it
	// twice is harmless.
	write(ctx context.Context, c gocql.Consistency, statements []statement) (touched bool, err error)
	// swap executes a lightweight transaction once. found is the state of the row when it was not applied: the cells
	// that its condition names.
	swap(ctx context.Context, s statement) (applied bool, found state, err error)
	// read calls each for every row of the answer, until it returns false. It asks for pages of that many rows; 0: for
	// all at once. A node that divides an answer into pages reads the partitions of an IN one after the other, and else
	// side by side.
	read(ctx context.Context, c gocql.Consistency, page int, s statement, each func(gocql.Scanner) (bool, error)) error
	// page calls each for every row of one page of the answer, until it fails: of that many rows, from where the page
	// before ended; nil: the first one. next is where this one ended, nil after the last.
	page(ctx context.Context, c gocql.Consistency, size int, from []byte, s statement, each func(gocql.Scanner) error) (next []byte, err error)
	close()
}

// statement is CQL with its values.
type statement struct {
	text string
	args []any
}

// driver is a session over gocql.
type driver struct{ session *gocql.Session }

var _ session = driver{}

func (d driver) close() { d.session.Close() }

func (d driver) write(ctx context.Context, c gocql.Consistency, statements []statement) (bool, error) {
	policy := &eachHost{one: c == gocql.One}
	if len(statements) == 1 {
		err := d.session.Query(statements[0].text, statements[0].args...).WithContext(ctx).Consistency(c).
			Idempotent(true).RetryPolicy(policy).Exec()
		return policy.after(err), err
	}
	batch := d.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx).RetryPolicy(policy).DefaultTimestamp(false)
	batch.SetConsistency(c)
	for _, s := range statements {
		batch.Entries = append(batch.Entries, gocql.BatchEntry{Stmt: s.text, Args: s.args, Idempotent: true})
	}
	err := d.session.ExecuteBatch(batch)
	return policy.after(err), err
}

// after reports whether a request that ended with err may have changed something.
func (p *eachHost) after(err error) bool { return err != nil && (p.touched || !untouched(err, false)) }

func (d driver) swap(ctx context.Context, s statement) (bool, state, error) {
	// No retry by the driver once a node may have begun: a second try of a transaction that was applied finds its own
	// row and says that it was not.
	q := d.session.Query(s.text, s.args...).WithContext(ctx).Consistency(gocql.Quorum).
		SerialConsistency(gocql.Serial).Idempotent(false).RetryPolicy(untouchedHosts{})
	cells := map[string]any{}
	applied, err := q.MapScanCAS(cells)
	if err != nil || applied {
		return applied, state{}, err
	}
	return false, foundState(cells), nil
}

// foundState reads the cells that a refused transaction answers; those that it does not answer are zero.
func foundState(cells map[string]any) (s state) {
	s.version, _ = cells["version"].(int64)
	s.live, _ = cells["live"].(bool)
	s.again, _ = cells["again"].(bool)
	created, _ := cells["created"].([]byte)
	attempt, _ := cells["attempt"].([]byte)
	s.created, s.attempt = string(created), string(attempt)
	return s
}

func (d driver) read(ctx context.Context, c gocql.Consistency, page int, s statement, each func(gocql.Scanner) (bool, error)) error {
	iter := d.session.Query(s.text, s.args...).WithContext(ctx).Consistency(c).Idempotent(true).
		RetryPolicy(&eachHost{one: c == gocql.One}).PageSize(page).Prefetch(0).Iter()
	rows := iter.Scanner()
	for rows.Next() {
		if more, err := each(rows); err != nil || !more {
			iter.Close()
			return err
		}
	}
	return rows.Err()
}

func (d driver) page(ctx context.Context, c gocql.Consistency, size int, from []byte, s statement, each func(gocql.Scanner) error) ([]byte, error) {
	iter := d.session.Query(s.text, s.args...).WithContext(ctx).Consistency(c).Idempotent(true).
		RetryPolicy(&eachHost{one: c == gocql.One}).PageSize(size).PageState(from).Iter()
	next := iter.PageState()
	rows := iter.Scanner()
	for rows.Next() {
		if err := each(rows); err != nil {
			iter.Close()
			return nil, err
		}
	}
	if err := rows.Err(); err != nil || len(next) == 0 {
		return nil, err
	}
	return next, nil
}

// readAt is the consistency of a read; paxos reads exist for rows that change by transactions only.
func readAt(t metadata.Table, c metadata.Consistency) gocql.Consistency {
	switch {
	case c == metadata.One:
		return gocql.One
	case c == metadata.Serial && t.Rule == metadata.RuleCAS:
		return gocql.Consistency(gocql.Serial)
	}
	return gocql.Quorum
}

// writeAt is the consistency of a plain write.
func writeAt(c metadata.Consistency) gocql.Consistency {
	if c == metadata.One {
		return gocql.One
	}
	return gocql.Quorum
}
