package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/metadata/migration"
)

// TestCopyProgress_Lines: without a terminal there is a line every ten seconds, one at the end of each part, and one
// for a Cassandra that does not answer.
func TestCopyProgress_Lines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		c := (&app{stderr: &stderr}).newCopyProgress()
		c.finish() // nothing was begun
		c.at(migration.Progress{Total: 30_000})
		for i := range 25 {
			time.Sleep(time.Second)
			c.at(migration.Progress{Rows: 1000 * (i + 1), Total: 30_000, Again: i / 20 * 3})
		}
		time.Sleep(10 * time.Second)
		c.at(migration.Progress{Rows: 25_000, Total: 30_000, Silent: 10 * time.Second, Err: errors.New("no node answers")})
		time.Sleep(15 * time.Second)
		c.at(migration.Progress{Rows: 30_000, Total: 30_000, Again: 20})
		c.at(migration.Progress{Total: 30_000, Check: true, Again: 20})
		time.Sleep(5 * time.Second)
		c.at(migration.Progress{Rows: 30_000, Total: 30_000, Check: true, Again: 20})
		c.finish()
		want := []string{
			"10000 of 30000 rows copied, 1000/s, about 20s left",
			"20000 of 30000 rows copied, 1000/s, about 10s left",
			"Cassandra has not answered for 10s; this goes on until it answers, or has not for two minutes: no node answers",
			"30000 of 30000 rows copied, 600/s, about 0s left; tried again: 20 calls",
			"30000 of 30000 rows compared, 6000/s, about 0s left; tried again: 20 calls",
			"",
		}
		if got := stderr.String(); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	})
}
