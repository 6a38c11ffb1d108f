package gossip

import (
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/membership"
)

// trio is two members that know each other and one in a process of its own.
func trio(t *testing.T) (a, b *agent, c *child) {
	t.Helper()
	a = start(t, host("a"), nil)
	b = start(t, host("b"), []string{a.Address()})
	c = startChild(t, a.Address())
	a.awaitRun(c.Host)
	b.awaitRun(c.Host)
	return a, b, c
}

// slowest is how long the detection of a death may take on a machine that is busy with other tests.
const slowest = 10 * time.Second

func TestDetection_KilledProcess(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t)
	began := time.Now()
	c.signal(syscall.SIGKILL)
	a.awaitIDs("a", "b")
	b.awaitIDs("a", "b")
	took := time.Since(began)
	t.Logf("noticed after %s", took)
	if gone := a.Gone(); len(gone) != 1 || gone[0].ID != c.ID || gone[0].Left {
		t.Errorf("a remembers %+v, want the killed one, which did not leave in good order", gone)
	}
	if took < suspicionMult*probeEvery || took > slowest {
		t.Errorf("noticed after %s, want at least the suspicion of %s and at most %s", took, suspicionMult*probeEvery, slowest)
	}
}

func TestDetection_ShortPauseIsNoDeath(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t)
	gone := make(chan struct{}, 1)
	for _, m := range []*agent{a, b} {
		defer m.Changed(func() {
			if _, ok := membership.Find(m, c.ID); !ok {
				select {
				case gone <- struct{}{}:
				default:
				}
			}
		})()
	}
	const pause = 700 * time.Millisecond
	stood := c.watch()
	c.signal(syscall.SIGSTOP)
	<-time.After(pause)
	c.signal(syscall.SIGCONT)
	// As long again as a death takes to be noticed.
	died := false
	select {
	case <-gone:
		died = true
	case <-time.After(2 * suspicionMult * probeEvery):
	}
	switch longest := stood(); {
	case !died:
	case longest > pause+pause/2:
		t.Skipf("this machine is too busy: the pause took %s", longest)
	default:
		t.Errorf("a pause of %s was taken for a death\n%s", longest, a.log.text.String())
	}
}

func TestDetection_LongPauseEnds(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t)
	c.signal(syscall.SIGSTOP)
	a.awaitIDs("a", "b")
	b.awaitIDs("a", "b")
	c.signal(syscall.SIGCONT)
	a.awaitRun(c.Host)
	b.awaitRun(c.Host)
}
