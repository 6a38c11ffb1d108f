package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// TestRollingRestartOnCassandra stops each process as an operator does, and starts it again, one after another, under
// load; each Cassandra node, too, where there are three. No publish fails, and nothing is lost.
func TestRollingRestartOnCassandra(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{Controllers: 3, Stores: 3, Inputs: 2, Outputs: 2, Metadata: onCassandra(t, "all")})
	l := newLoad(t, anywhere(t, c), 200)
	l.start(2, 2)
	l.goesOn(1000)
	for _, s := range c.All() {
		from := time.Now()
		if code := s.Stop(); code != 0 {
			t.Errorf("%s ended with %d", s.Name, code)
		}
		s.Start()
		c.AwaitHosts()
		l.down(s.Name, from)
		l.goesOn(500)
	}
	all := nodes.Start(t)
	if len(all) < 3 {
		fmt.Fprintln(os.Stderr, "SKIPPED, NO CASSANDRA NODE WAS RESTARTED: set COLUMBA_CASSANDRA_NODES=3")
		all = nil
	}
	for _, n := range all {
		n.Stop(t)
		l.goesOn(500)
		n.Revive(t)
		l.goesOn(500)
	}
	l.finish()
	if l.outcomes[verify.Failed]+l.outcomes[verify.Unknown] > 0 {
		t.Errorf("publishers were told of errors: %v", l.refusals)
	}
	l.row(fmt.Sprintf("every process and %d Cassandra nodes restarted in turn", len(all)), fmt.Sprintf("%d acknowledged", l.acknowledged()))
}

// TestStartWhileCassandraIsAway starts processes while no Cassandra node answers. They wait for a minute, outside of
// the cluster, and end with a clear message. One that waits when Cassandra comes back goes on.
func TestStartWhileCassandraIsAway(t *testing.T) {
	long(t)
	url := onCassandra(t, "all")
	c := process.StartCluster(t, process.Layout{Controllers: 2, Stores: 3, Inputs: 1, Outputs: 1, Metadata: url})
	l := newLoad(t, anywhere(t, c), 50)
	l.stay = func() time.Duration { return time.Hour }
	l.start(1, 1)
	l.goesOn(100)
	away := time.Now()
	back := stopAll(t)
	begin := func(name, roles string) *process.Server {
		return c.Stranger(name, filepath.Join(t.TempDir(), name), "--roles", roles, "--metadata", url)
	}
	began := time.Now()
	late := []*process.Server{begin("another-controller", "controller,frontend"), begin("another-output", "outputhost")}
	for time.Since(began) < 40*time.Second {
		for _, h := range c.Hosts() {
			for _, s := range late {
				if s.Alive(); h.Addr == s.Addr {
					t.Fatalf("%s is a member of the cluster: %+v", s.Name, h)
				}
			}
		}
		l.goesOn(50)
		<-time.After(2 * time.Second)
	}
	for _, s := range late {
		code, log := s.Ended(), s.Log()
		t.Logf("%s ended with %d after %s; its log ends with …%s", s.Name, code, time.Since(began).Round(time.Second), log[max(0, len(log)-300):])
		if code != core.ExitUnavailable || !strings.Contains(log, "Cassandra does not answer") {
			t.Errorf("%s ended with %d: %s", s.Name, code, log)
		}
		if n := strings.Count(log, "\n"); n > 60 {
			t.Errorf("%s wrote %d lines of log", s.Name, n)
		}
	}
	l.goesOn(100)
	waits := begin("one-that-waits", "controller,frontend")
	<-time.After(5 * time.Second)
	back()
	waits.Await()
	l.away("Cassandra", away)
	l.goesOn(100)
	l.finish()
	if l.outcomes[verify.Failed] > 0 {
		t.Errorf("publishers were told of errors: %v", l.refusals)
	}
}
