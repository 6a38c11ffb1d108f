package cassandra

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strings"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// Cassandra knows a table by an id. Two nodes that create the same table at the same time choose two ids, and then they
// disagree about it for ever. So each statement names the id, and all callers of Apply that overlap name the same one.
// It is made of a seed, on which they agree by a transaction. A keyspace that is dropped and created again gets a new
// seed: with the old ids a node that missed the drop would have its old rows again.

// seedTTL is how long a seed lives after its last use. A call of Apply is much shorter.
const seedTTL = 6 * maxCall

const seedBytes = 16

// idMark stands for the id of a table in the files of the schema.
const idMark = "TABLE_ID"

// tableID is the id of a table, from the seed of its keyspace.
func tableID(seed []byte, table string) string {
	sum := sha256.Sum256(append(append([]byte("columba/"), seed...), table...))
	var id core.ID
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8 of UUIDs: a hash of one's own
	return id.String()
}

// withID puts the id of the table into a statement that creates it.
func withID(text string, seed []byte) string {
	return strings.Replace(text, idMark, tableID(seed, createdTable(text)), 1)
}

// createdTable is the name of the table, with its keyspace, that a statement creates; "" if it creates none.
func createdTable(text string) string {
	after, ok := strings.CutPrefix(text, "CREATE TABLE IF NOT EXISTS ")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(after, " ")
	return name
}

// seedTable is the statement for the table of the seed. Its id follows from its name alone: its one row is gone seedTTL
// after the last use.
func seedTable(keyspace string) string {
	return withID("CREATE TABLE IF NOT EXISTS "+keyspace+".schema_seed (owner text PRIMARY KEY, seed blob) WITH id = "+idMark, nil)
}

// agreedSeed returns the seed of the keyspace; the first caller chooses it. Each call has it live for seedTTL more.
func agreedSeed(ctx context.Context, session *gocql.Session, keyspace string) ([]byte, error) {
	mine := make([]byte, seedBytes)
	rand.Read(mine)
	var found []byte // nil: there is none
	var pace pacer
	for {
		cells := map[string]any{}
		applied, err := session.Query("UPDATE "+keyspace+".schema_seed USING TTL ? SET seed = ? WHERE owner = 'columba' IF seed = ?",
			int(seedTTL.Seconds()), mine, found).WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).
			Idempotent(false).RetryPolicy(nil).MapScanCAS(cells)
		switch {
		case err == nil && applied:
			return mine, nil
		case err == nil:
			// Somebody's seed is there, perhaps our own after a lost answer. All use it.
			if found, _ = cells["seed"].([]byte); found != nil {
				mine = found
			}
		case rejected(err):
			return nil, schemaError("agree on ids of tables", err)
		}
		if stopped := pace.wait(ctx); stopped != nil {
			return nil, schemaError("agree on ids of tables", cmp.Or(err, stopped))
		}
	}
}
