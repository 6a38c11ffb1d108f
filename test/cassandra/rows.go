package cassandra

import (
	"io"
	"log"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// Rows deletes rows of a keyspace by hand, behind the back of the processes that use it.
type Rows struct {
	t       *testing.T
	session *gocql.Session
}

// NewRows connects to nodes until the test ends.
func NewRows(t *testing.T, addrs []string, keyspace string) *Rows {
	t.Helper()
	cfg := gocql.NewCluster(addrs...)
	cfg.Keyspace, cfg.Consistency, cfg.Timeout, cfg.ConnectTimeout = keyspace, gocql.All, 10*time.Second, 10*time.Second
	cfg.DisableInitialHostLookup, cfg.Logger = true, log.New(io.Discard, "", 0)
	session, err := cfg.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return &Rows{t, session}
}

// DeletePut deletes the row of a put table with that key, in whichever bucket it is, and returns how many there were.
func (r *Rows) DeletePut(cql, table, partition, row string) (found int) {
	r.t.Helper()
	iter := r.session.Query("SELECT bucket FROM "+cql+" WHERE tbl = ? AND part = ? AND bucket IN (0, 1, 2, 3, 4, 5, 6, 7) AND row = ?", table, []byte(partition), []byte(row)).Iter()
	for bucket := 0; iter.Scan(&bucket); found++ {
		err := r.session.Query("DELETE FROM "+cql+" WHERE tbl = ? AND part = ? AND bucket = ? AND row = ?", table, []byte(partition), bucket, []byte(row)).Exec()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if err := iter.Close(); err != nil {
		r.t.Fatal(err)
	}
	return found
}
