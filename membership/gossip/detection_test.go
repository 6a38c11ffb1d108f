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
	if took < suspicionMult*probeEvery || took > slowest {
		t.Errorf("noticed after %s, want at least the suspicion of %s and at most %s", took, suspicionMult*probeEvery, slowest)
	}
}

func TestDetection_ShortPauseIsNoDeath(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t)
	gone := make(chan struct{}, 2)
	for _, m := range []*agent{a, b} {
		defer m.Changed(func() {
			if _, ok := membership.Find(m, c.ID); !ok {
				gone <- struct{}{}
			}
		})()
	}
	const pause = 700 * time.Millisecond
	c.signal(syscall.SIGSTOP)
	began := time.Now()
	<-time.After(pause)
	c.signal(syscall.SIGCONT)
	if took := time.Since(began); took > pause+pause/2 {
		t.Skipf("this machine is too busy: it took %s to end the pause", took)
	}
	// As long again as a death takes to be noticed.
	select {
	case <-gone:
		t.Errorf("a pause of %s was taken for a death\n%s", pause, a.log.text.String())
	case <-time.After(2 * suspicionMult * probeEvery):
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
