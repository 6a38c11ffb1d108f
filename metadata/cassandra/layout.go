package cassandra

import (
	"fmt"
	"hash/fnv"

	"github.com/columbamq/columba/metadata"
)

// buckets is how many partitions the index of a partition's rows is spread over. It never changes.
const buckets = 64

// layout says where the rows of a metadata table are, and whether List finds them.
type layout struct {
	cql    string // name of the Cassandra table
	listed listing
}

// listing is how List finds the rows of a partition.
type listing uint8

const (
	byPartition listing = iota // they are one partition in Cassandra, too
	byIndex                    // they are partitions of their own, named in cas_index
	unlisted                   // nobody lists them
)

// The tables that are not kept as the others of their rule are.
var layouts = map[string]layout{
	metadata.Groups.Name:      {"cas_shared", byPartition}, // a queue has few groups, which are read together
	metadata.Claims.Name:      {"cas_shared", byPartition}, // a share has a claim in each of few epochs
	metadata.Seals.Name:       {"cas_row", unlisted},       // read by extent: one index write less for each extent
	metadata.Heads.Name:       {"cas_row", unlisted},       // read by queue
	metadata.Cancels.Name:     {"cas_row", unlisted},       // read by extent
	metadata.Leases.Name:      {"cas_row", unlisted},       // read by name
	metadata.Work.Name:        {"put_hint", byPartition},
	metadata.Assignments.Name: {"put_progress", byPartition},
	metadata.Dones.Name:       {"put_progress", byPartition},
	metadata.Checkpoints.Name: {"put_progress", byPartition},
}

func layoutOf(t metadata.Table) layout {
	if l, ok := layouts[t.Name]; ok {
		return l
	}
	if t.Rule == metadata.RuleCAS {
		return layout{"cas_row", byIndex}
	}
	return layout{"put_row", byPartition}
}

// bucketOf is where the index names a row.
func bucketOf(row string) int {
	h := fnv.New32a()
	h.Write([]byte(row))
	return int(h.Sum32() % buckets)
}

// allBuckets are the values of IN for an index.
var allBuckets = func() (all []int) {
	for b := range buckets {
		all = append(all, b)
	}
	return all
}()

// Statements, with the keyspace and the Cassandra table in place of %s. Keys are blobs: a metadata key may hold any
// byte but zero, and blobs are ordered as bytes.
const (
	ofRow     = " WHERE tbl = ? AND part = ? AND row = ?"
	casCells  = "version, live, again, created, attempt, value"
	getCAS    = "SELECT " + casCells + " FROM %s" + ofRow
	listCAS   = "SELECT row, " + casCells + " FROM %s WHERE tbl = ? AND part = ? AND row > ?"
	getPut    = "SELECT value, writetime(value) FROM %s" + ofRow
	listPut   = "SELECT row, value, writetime(value) FROM %s WHERE tbl = ? AND part = ? AND row > ?"
	putRow    = "UPDATE %s USING TIMESTAMP ? AND TTL ? SET value = ?" + ofRow
	removeRow = "DELETE FROM %s USING TIMESTAMP ?" + ofRow

	// A row is written by UPDATE, not by INSERT: it is gone when all its cells have expired. created is a condition so
	// that Cassandra answers it; the same holds for attempt in the changes of rows.
	insertCAS = "UPDATE %s SET version = ?, live = true, again = false, created = ?, attempt = ?, value = ?" + ofRow +
		" IF version = null AND live = null AND again = null AND created = null"
	insertOver = "UPDATE %s SET version = ?, live = true, again = true, created = ?, attempt = ?, value = ?" + ofRow +
		" IF version = ? AND live = false AND again != null AND created != ?"
	updateCAS = "UPDATE %s SET version = ?, attempt = ?, value = ?" + ofRow +
		" IF version = ? AND live = true AND attempt != ?"
	deleteCAS = "UPDATE %s USING TTL ? SET version = ?, live = false, again = ?, created = ?, attempt = ?, value = null" + ofRow +
		" IF version = ? AND live = true AND attempt != ?"

	addEntry    = "INSERT INTO %s (tbl, part, bucket, row, attempt, at) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
	removeEntry = "DELETE FROM %s USING TIMESTAMP ? WHERE tbl = ? AND part = ? AND bucket = ? AND row = ? AND attempt = ?"
	listEntries = "SELECT bucket, row, attempt, at FROM %s WHERE tbl = ? AND part = ? AND bucket IN ? AND row > ? PER PARTITION LIMIT ?"
	allRows     = "SELECT DISTINCT tbl, part, row FROM %s"

	writeNote = "INSERT INTO %s (tbl, part, writer, at) VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
	readNotes = "SELECT writer, at FROM %s WHERE tbl = ? AND part = ?"
)

const (
	indexTable = "cas_index"
	noteTable  = "change_note"
)

// text is the statement for rows of a metadata table.
func (s *Store) text(format string, t metadata.Table) string {
	return fmt.Sprintf(format, s.cfg.Keyspace+"."+layoutOf(t).cql)
}

// indexText is the statement for entries of the index.
func (s *Store) indexText(format string) string {
	return fmt.Sprintf(format, s.cfg.Keyspace+"."+indexTable)
}

// noteText is the statement for notes of changes.
func (s *Store) noteText(format string) string {
	return fmt.Sprintf(format, s.cfg.Keyspace+"."+noteTable)
}
