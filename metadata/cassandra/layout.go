package cassandra

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/columbamq/columba/metadata"
)

// How many partitions in Cassandra hold the index of a metadata partition, and its put rows. They never change.
const (
	buckets    = 64
	rowBuckets = 8
)

// layout says where the rows of a metadata table are, and whether List finds them.
type layout struct {
	cql    string // name of the Cassandra table
	listed listing
}

// listing is how List finds the rows of a partition.
type listing uint8

const (
	byPartition listing = iota // they are one partition in Cassandra, too
	byBucket                   // they are spread over rowBuckets partitions
	byIndex                    // they are partitions of their own, named in cas_index
	unlisted                   // nobody lists them
)

// The tables that are not kept as the others of their rule are.
var layouts = map[string]layout{
	metadata.Groups.Name:      {"cas_shared", byPartition},   // a queue has few groups, which are read together
	metadata.Claims.Name:      {"cas_shared", byPartition},   // a share has a claim in each of few epochs
	metadata.Seals.Name:       {"cas_row", unlisted},         // read by extent: one index write less for each extent
	metadata.Heads.Name:       {"cas_row", unlisted},         // read by queue
	metadata.Cancels.Name:     {"cas_row", unlisted},         // read by extent
	metadata.Leases.Name:      {"cas_row", unlisted},         // read by name
	metadata.Extents.Name:     {"put_row", byBucket},         // a queue may have 100,000
	metadata.Work.Name:        {"put_hint", byPartition},     // metadata.HintShards spreads them
	metadata.Assignments.Name: {"put_progress", byBucket},    // a group has one for each extent …
	metadata.Dones.Name:       {"put_progress", byBucket},    // … and one of these
	metadata.Checkpoints.Name: {"put_progress", byPartition}, // a share has few
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
func bucketOf(row string) int { return hashed(row, buckets) }

// rowBucket is the bucket of a put row. Rows of one extent, "extent/…", are in one bucket.
func rowBucket(t metadata.Table, row string) int {
	if layoutOf(t).listed != byBucket {
		return 0
	}
	extent, _, _ := strings.Cut(row, "/")
	return hashed(extent, rowBuckets)
}

func hashed(text string, n uint32) int {
	h := fnv.New32a()
	h.Write([]byte(text))
	return int(h.Sum32() % n)
}

// The values of IN for all buckets.
var allBuckets, allRowBuckets = upTo(buckets), upTo(rowBuckets)

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// Statements, with the keyspace and the Cassandra table in place of %s. Keys are blobs: a metadata key may hold any
// byte but zero, and blobs are ordered as bytes.
const (
	ofRow       = " WHERE tbl = ? AND part = ? AND row = ?"
	casCells    = "version, live, again, created, attempt, value"
	getCAS      = "SELECT " + casCells + " FROM %s" + ofRow
	getTogether = "SELECT row, " + casCells + " FROM %s WHERE tbl = ? AND part = ? AND row IN ?"
	listCAS     = "SELECT row, " + casCells + " FROM %s WHERE tbl = ? AND part = ? AND row > ?"
	ofPut       = " WHERE tbl = ? AND part = ? AND row = ? AND bucket = ?"
	getPut      = "SELECT value, writetime(value) FROM %s" + ofPut
	listPut     = "SELECT row, value, writetime(value) FROM %s WHERE tbl = ? AND part = ? AND row > ? AND bucket = 0"
	listBuckets = "SELECT bucket, row, value, writetime(value) FROM %s WHERE tbl = ? AND part = ? AND row > ? AND bucket IN ? PER PARTITION LIMIT ?"
	putRow      = "UPDATE %s USING TIMESTAMP ? AND TTL ? SET value = ?" + ofPut
	removeRow   = "DELETE FROM %s USING TIMESTAMP ?" + ofPut

	// A row is written by UPDATE, not by INSERT: it is gone when all its cells have expired. created is a condition so
	// that Cassandra answers it; the same holds for attempt in the changes of rows.
	insertCAS = "UPDATE %s SET version = ?, live = true, again = false, created = ?, attempt = ?, value = ?" + ofRow +
		" IF version = null AND live = null AND again = null AND created = null"
	insertOver = "UPDATE %s SET version = ?, live = true, again = true, created = ?, attempt = ?, value = ?" + ofRow +
		" IF version = ? AND live = false AND again != null AND created != ?"
	// live is written, too: that of before ends, if the row was to end. updateToEnd writes all cells, as none may be left
	// when the others have expired.
	updateCAS = "UPDATE %s SET version = ?, live = true, attempt = ?, value = ?" + ofRow +
		" IF version = ? AND live = true AND attempt != ?"
	updateToEnd = "UPDATE %s USING TTL ? SET version = ?, live = true, again = ?, created = ?, attempt = ?, value = ?" + ofRow +
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
