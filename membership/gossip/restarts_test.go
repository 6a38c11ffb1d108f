package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestRestarts_AllHearOfEach: a host crashes and starts again at its address, again and again. Every member hears of
// each run by gossip: none has to wait until it happens to exchange all it knows with another.
func TestRestarts_AllHearOfEach(t *testing.T) {
	t.Parallel()
	const restarts = 20
	pace := time.NewTicker(300 * time.Millisecond) // what a process needs to end and to start
	defer pace.Stop()
	first := start(t, host("a"), nil)
	members := []*agent{first}
	for i := range 3 {
		members = append(members, start(t, host(core.HostID(fmt.Sprintf("b%d", i))), []string{first.Address()}))
	}
	x := start(t, host("x"), []string{first.Address()})
	slowest := time.Duration(0)
	for range restarts {
		at := x.Address()
		<-pace.C
		x.crash()
		x = start(t, host("x"), []string{first.Address()}, func(m *Monitor) { m.cfg.Bind = at })
		began := time.Now()
		for _, m := range members {
			m.awaitRun(x.Self())
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest run was heard of after %s", slowest)
	if slowest > pushPullEvery/4 {
		t.Errorf("a run was heard of by all after %s, want less than a quarter of the exchange's %s", slowest, pushPullEvery)
	}
}
