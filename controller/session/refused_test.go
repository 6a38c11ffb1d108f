package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// readOnly is metadata that refuse all changes, as Cassandra does whose disks are full, or for a user who may only
// read.
type readOnly struct{ metadata.Store }

var errReadOnly = core.Errorf(core.CodeInternal, "Cassandra refuses to change metadata: disk usage exceeds failure threshold")

func (readOnly) Insert(context.Context, metadata.Table, metadata.Key, []byte) error {
	return errReadOnly
}

func (readOnly) Update(context.Context, metadata.Table, metadata.Key, metadata.Version, []byte, time.Duration) error {
	return errReadOnly
}

// TestSession_SaysThatItsLeaseIsRefused: the metadata can be read, and refuse changes. A controller that starts then,
// and one that loses its lease by it, tell the log why they do nothing, once a minute, and go on by themselves.
func TestSession_SaysThatItsLeaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := memory.New()
		w := newWorld(t, rows)
		a := w.start("a", 1)
		within(t, "it is responsible for all", 20*time.Second, w.settled)
		use := func(m metadata.Store) { w.meta.Store(&m) }
		use(readOnly{rows})
		b := w.start("b", 1)
		time.Sleep(2*time.Minute + 20*time.Second)
		synctest.Wait()
		for _, c := range []*controller{a, b} {
			if c.Holds() {
				t.Errorf("%s holds a lease that it cannot renew", c.id)
			}
			log := c.log.String()
			if n := strings.Count(log, "the session lease of this controller cannot be written"); n < 2 || n > 3 || !strings.Contains(log, "disk usage exceeds") {
				t.Errorf("%s says %d times in two minutes that its lease cannot be written:\n%s", c.id, n, log)
			}
		}
		use(rows)
		within(t, "each has its part", 30*time.Second, func() bool { return w.settled() && w.of(a) > 0 && w.of(b) > 0 })
		before := a.log.Len() + b.log.Len()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if after := a.log.Len() + b.log.Len(); after != before {
			t.Errorf("they go on to say:\n%s\n%s", a.log.String(), b.log.String())
		}
		a.end()
		b.end()
	})
}
