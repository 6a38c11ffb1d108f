package cassandra

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// loadedAt is the timestamp of rows that Load writes by plain writes: far below that of any transaction. So the first
// transaction on such a row counts, whatever the clocks of its nodes say.
const loadedAt = 1

const (
	// By UPDATE, as all rows of CAS tables: see insertCAS.
	loadCAS = "UPDATE %s USING TIMESTAMP ? AND TTL ? SET version = ?, live = true, again = false, created = ?, attempt = ?, value = ?" + ofRow
	allCAS  = "SELECT tbl, part, row, version, live, value, ttl(value) FROM %s"
	allPut  = "SELECT tbl, part, row, value, writetime(value), ttl(value) FROM %s"
)

// Load writes rows as another store had them: with their versions, timestamps and ends. It is for a keyspace that nobody
// else uses yet. Writing the same rows again changes nothing. CodeUnavailable, CodeUnknown: write them again.
func (s *Store) Load(ctx context.Context, rows []metadata.Stored) error {
	puts := make(map[metadata.Table][]metadata.Row)
	writes, writing := errgroup.WithContext(ctx)
	writes.SetLimit(atOnce)
	now := time.Now()
	for _, r := range rows {
		ttl := time.Duration(0)
		if !r.Expires.IsZero() {
			if ttl = r.Expires.Sub(now); ttl <= 0 {
				continue
			}
		}
		switch {
		case r.Table.Rule == metadata.RuleCAS:
			writes.Go(func() error { return s.loadCAS(writing, r.Table, r.Row, ttl) })
		case ttl == 0:
			puts[r.Table] = append(puts[r.Table], r.Row)
		default:
			writes.Go(func() error {
				return s.Put(writing, r.Table, r.Row.Key, r.Row.Value, r.Row.Written, ttl, metadata.Quorum)
			})
		}
	}
	for t, rows := range puts {
		writes.Go(func() error { return s.PutAll(writing, t, rows, metadata.Quorum) })
	}
	return writes.Wait()
}

// loadCAS writes a row, and its entry in the index before. Plain writes and transactions must not be mixed on the same
// cells: nobody else uses the keyspace, and the timestamp is below those of transactions.
func (s *Store) loadCAS(ctx context.Context, t metadata.Table, r metadata.Row, ttl time.Duration) error {
	ctx, end, err := s.begin(ctx, metadata.CheckWrite(t, metadata.RuleCAS, r.Key, r.Value))
	if err != nil {
		return err
	}
	defer end()
	attempt := loadedBy(t, r)
	if layoutOf(t).listed == byIndex {
		if err := s.addEntry(ctx, t, r.Key.Partition, entry{r.Key.Row, attempt, loadedAt}); err != nil {
			return err
		}
	}
	args := append([]any{int64(loadedAt), seconds(ttl), int64(r.Version), []byte(attempt), []byte(attempt), own(r.Value)}, s.of(t, r.Key)...)
	touched, err := s.session.write(ctx, gocql.Quorum, []statement{{s.text(loadCAS, t), args}})
	if err != nil {
		return writeError(ctx, err, touched)
	}
	return nil
}

// loadedBy is the attempt of a row that is loaded: the same each time, so that loading it again makes no second entry.
func loadedBy(t metadata.Table, r metadata.Row) string {
	h := sha256.New()
	for _, part := range []string{t.Name, r.Key.Partition, r.Key.Row} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	id := h.Sum(nil)[:len(core.ID{})]
	return string(id)
}

// Stored calls each for every live row of the keyspace, in any order, until it fails. Errors: those of each,
// CodeUnavailable, CodeCorrupt (a table that this version does not know).
func (s *Store) Stored(ctx context.Context, each func(metadata.Stored) error) error {
	ctx, release, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	read := make(map[string]bool)
	for _, t := range metadata.Tables {
		table := layoutOf(t).cql
		if read[table] {
			continue
		}
		read[table] = true
		if err := s.allOf(ctx, table, t.Rule, each); err != nil {
			return err
		}
	}
	return nil
}

// allOf reads a whole Cassandra table, page by page.
func (s *Store) allOf(ctx context.Context, table string, rule metadata.Rule, each func(metadata.Stored) error) error {
	format := allCAS
	if rule == metadata.RulePut {
		format = allPut
	}
	var failed error
	scan := statement{fmt.Sprintf(format, s.cfg.Keyspace+"."+table), nil}
	err := s.session.read(ctx, gocql.Quorum, fetchRow, scan, func(rows gocql.Scanner) (bool, error) {
		r, ours, err := s.scanStored(rule, rows)
		if err == nil && ours {
			failed = each(r)
		}
		return failed == nil, err
	})
	switch {
	case failed != nil:
		return failed
	case core.CodeOf(err) == core.CodeCorrupt:
		return err
	case err != nil:
		return readError(ctx, err)
	}
	return nil
}

// scanStored reads a row of allCAS or allPut; it is not ours if it is not live, or of another prefix.
func (s *Store) scanStored(rule metadata.Rule, rows gocql.Scanner) (r metadata.Stored, ours bool, err error) {
	var name string
	var partition, row []byte
	var version, written int64
	var ttl *int
	live := true
	if rule == metadata.RuleCAS {
		err = rows.Scan(&name, &partition, &row, &version, &live, &r.Row.Value, &ttl)
	} else {
		err = rows.Scan(&name, &partition, &row, &r.Row.Value, &written, &ttl)
		r.Row.Written = time.UnixMicro(written)
	}
	name, ours = strings.CutPrefix(name, s.prefix)
	if err != nil || !live || !ours {
		return r, false, err
	}
	var known bool
	if r.Table, known = metadata.TableOf(name); !known {
		return r, false, core.Errorf(core.CodeCorrupt, "the keyspace has a table %q, which this version does not know", name)
	}
	r.Row.Key = metadata.Key{Partition: string(partition), Row: string(row)}
	r.Row.Version = metadata.Version(version)
	if ttl != nil {
		r.Expires = time.Now().Add(time.Duration(*ttl) * time.Second)
	}
	return r, true, nil
}
