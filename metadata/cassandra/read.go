package cassandra

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	maxPage  = 4 << 20 // bytes of values in one page of a list
	fetchRow = 64      // rows of a partition that Cassandra answers at a time: 16 MiB at most
	// fetchSerial is fetchRow at SERIAL: each replica answers a Paxos read with all rows, not one with them and the
	// others with a digest. A node with 64 MiB for its network ended when it was 10 MiB.
	fetchSerial = 16
)

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	ctx, end, err := s.begin(ctx, metadata.CheckKey(t, k))
	if err != nil {
		return metadata.Row{}, err
	}
	defer end()
	row, found, err := s.get(ctx, t, k, c)
	if err == nil && !found {
		err = metadata.NoRow(t, k)
	}
	return row, err
}

// get reads one row within a call.
func (s *Store) get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (row metadata.Row, found bool, err error) {
	if t.Rule == metadata.RuleCAS {
		st, err := s.state(ctx, t, k, c)
		if err != nil || !st.live {
			return metadata.Row{}, false, err
		}
		return st.row(k), true, nil
	}
	row.Key = k
	get := statement{s.text(getPut, t), s.of(t, k)}
	err = s.session.read(ctx, readAt(t, c), 1, get, func(rows gocql.Scanner) (bool, error) {
		var written int64
		err := rows.Scan(&row.Value, &written)
		row.Written, found = time.UnixMicro(written), true
		return false, err
	})
	if err != nil {
		return metadata.Row{}, false, readError(ctx, err)
	}
	if !found {
		return metadata.Row{}, false, nil
	}
	return row, true, nil
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	return s.ListWhere(ctx, t, partition, after, limit, c, nil)
}

// ListWhere implements metadata.WhereLister. Rows that are found by the index are read only if they are wanted; nil:
// all are.
func (s *Store) ListWhere(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency, wanted func(row string) bool) ([]metadata.Row, bool, error) {
	ctx, end, err := s.begin(ctx, metadata.CheckList(t, partition, after, limit))
	if err != nil {
		return nil, false, err
	}
	defer end()
	p := &page{limit: limit, wanted: wanted}
	switch layoutOf(t).listed {
	case byIndex:
		err = s.listIndex(ctx, t, partition, after, c, p)
	case byPartition:
		err = s.listPartition(ctx, t, partition, after, c, p)
	case byBucket:
		err = s.listBuckets(ctx, t, partition, after, c, p)
	default:
		err = core.Errorf(core.CodeUnsupported, "rows of table %s are read by key; they have no listing", t.Name)
	}
	if err != nil {
		return nil, false, err
	}
	return p.rows, p.more, nil
}

// page collects the rows of one answer of List.
type page struct {
	limit   int
	wanted  func(row string) bool // nil: all rows are
	rows    []metadata.Row
	size    int
	largest int // value
	more    bool
}

func (p *page) wants(row string) bool { return p.wanted == nil || p.wanted(row) }

// add appends a row if there is room, and it is wanted. It reports whether it had room; more is set otherwise.
func (p *page) add(row metadata.Row) bool {
	if !p.wants(row.Key.Row) {
		return true
	}
	if len(p.rows) == p.limit || len(p.rows) > 0 && p.size+len(row.Value) > maxPage {
		p.more = true
		return false
	}
	p.rows = append(p.rows, row)
	p.size += len(row.Value)
	p.largest = max(p.largest, len(row.Value))
	return true
}

// listPartition lists rows that are one partition in Cassandra.
func (s *Store) listPartition(ctx context.Context, t metadata.Table, partition, after string, c metadata.Consistency, p *page) error {
	text := listPut
	if t.Rule == metadata.RuleCAS {
		text = listCAS
	}
	list := statement{s.text(text, t), []any{s.name(t), []byte(partition), []byte(after)}}
	level, fetch := readAt(t, c), fetchRow
	if serial(level) {
		fetch = fetchSerial
	}
	err := s.session.read(ctx, level, min(p.limit+1, fetch), list, func(rows gocql.Scanner) (bool, error) {
		row, live, err := scanListed(t, partition, rows)
		if err != nil || !live {
			return true, err
		}
		return p.add(row), nil
	})
	if err != nil {
		return readError(ctx, err)
	}
	return nil
}

// scanListed reads a row of listPut or listCAS; not live: the marker of a deleted row.
func scanListed(t metadata.Table, partition string, rows gocql.Scanner) (_ metadata.Row, live bool, err error) {
	var name []byte
	if t.Rule == metadata.RuleCAS {
		var found state
		err := found.scan(rows, &name)
		return found.row(metadata.Key{Partition: partition, Row: string(name)}), found.live, err
	}
	var row metadata.Row
	var written int64
	err = rows.Scan(&name, &row.Value, &written)
	row.Key, row.Written = metadata.Key{Partition: partition, Row: string(name)}, time.UnixMicro(written)
	return row, true, err
}
