package cassandra

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

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

// Parts divides rows into those that Load writes by one request, or by two where a row has an entry in the index.
func (s *Store) Parts(rows []metadata.Stored) (all [][]metadata.Stored) {
	var puts []metadata.Stored
	for _, r := range rows {
		if r.Table.Rule == metadata.RuleCAS {
			all = append(all, []metadata.Stored{r})
		} else {
			puts = append(puts, r)
		}
	}
	return append(all, parts(puts, func(r metadata.Stored) (metadata.Table, metadata.Row) { return r.Table, r.Row })...)
}

// Load writes rows as another store had them: with their versions, timestamps and ends. It is for a keyspace that
// nobody else uses yet: watches are not told. Writing the same rows again changes nothing. CodeUnavailable,
// CodeUnknown: write them again.
func (s *Store) Load(ctx context.Context, rows []metadata.Stored) error {
	for _, part := range s.Parts(rows) {
		var err error
		if part[0].Table.Rule == metadata.RuleCAS {
			err = s.loadCAS(ctx, part[0])
		} else {
			err = s.loadPuts(ctx, part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// left is the time to live of a row, 0 = for ever; not ok if it has ended.
func left(r metadata.Stored, now time.Time) (ttl time.Duration, ok bool) {
	if r.Expires.IsZero() {
		return 0, true
	}
	ttl = r.Expires.Sub(now)
	return ttl, ttl > 0
}

// loadPuts writes rows of one partition in Cassandra.
func (s *Store) loadPuts(ctx context.Context, rows []metadata.Stored) error {
	var puts []statement
	now := time.Now()
	for _, r := range rows {
		if err := metadata.CheckPut(r.Table, r.Row.Key, r.Row.Value, r.Row.Written); err != nil {
			return err
		}
		if ttl, ok := left(r, now); ok {
			puts = append(puts, s.put(r.Table, r.Row.Key, r.Row.Value, r.Row.Written, ttl))
		}
	}
	if len(puts) == 0 {
		return nil
	}
	ctx, end, err := s.begin(ctx, nil)
	if err != nil {
		return err
	}
	defer end()
	if touched, err := s.session.write(ctx, gocql.Quorum, puts); err != nil {
		return writeError(ctx, err, touched)
	}
	return nil
}

// loadCAS writes a row, and its entry in the index before. Plain writes and transactions must not be mixed on the same
// cells: nobody else uses the keyspace, and the timestamp is below those of transactions.
func (s *Store) loadCAS(ctx context.Context, stored metadata.Stored) error {
	t, r := stored.Table, stored.Row
	ttl, ok := left(stored, time.Now())
	if !ok {
		return nil
	}
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

// Page reads some live rows of the keyspace, in any order, from a place that an earlier call has answered; nil: from
// the first one. next is nil when there are no more. A page may be empty. Errors: CodeUnavailable, CodeCorrupt (a table
// that this version does not know).
func (s *Store) Page(ctx context.Context, place []byte) (rows []metadata.Stored, next []byte, err error) {
	if len(place) == 0 {
		place = []byte{0} // the first table, from its first row
	}
	tables := storedIn()
	at := int(place[0])
	if at >= len(tables) {
		return nil, nil, core.Errorf(core.CodeBadArgument, "a page of the metadata begins at no place")
	}
	ctx, end, err := s.begin(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	format := allCAS
	if tables[at].rule == metadata.RulePut {
		format = allPut
	}
	scan := statement{fmt.Sprintf(format, s.cfg.Keyspace+"."+tables[at].cql), nil}
	more, err := s.session.page(ctx, gocql.Quorum, fetchRow, place[1:], scan, func(answer gocql.Scanner) error {
		r, ours, err := s.scanStored(tables[at].rule, answer)
		if err == nil && ours {
			rows = append(rows, r)
		}
		return err
	})
	switch {
	case core.CodeOf(err) == core.CodeCorrupt:
		return nil, nil, err
	case err != nil:
		return nil, nil, readError(ctx, err)
	case more != nil:
		next = append([]byte{byte(at)}, more...)
	case at+1 < len(tables):
		next = []byte{byte(at + 1)}
	}
	return rows, next, nil
}

// stored is a table of Cassandra that has rows of metadata.
type stored struct {
	cql  string
	rule metadata.Rule
}

func storedIn() (all []stored) {
	for _, t := range metadata.Tables {
		if s := (stored{layoutOf(t).cql, t.Rule}); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
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
