package node

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
)

const (
	copyLook  = 2 * time.Second  // how long another run of this host has for its answer
	copyDoubt = 5 * time.Second  // how long after it met the cluster a process gives way to an older run
	copyGrace = 10 * time.Second // how long a newer run must answer before the older one ends; more than copyDoubt
)

// copies looks for another live process with the host id of this one: one of the two runs on a copy of the other's data
// directory. Two of them would be two sets of metadata, so one of them ends:
//
//   - A process that has just met the cluster, when an older run answers: that one has what was acknowledged since the copy was made.
//   - An older process, when a newer run goes on to answer: it began while the older one was silent, and all members follow the newer one.
//
// One goroutine at a time uses it.
type copies struct {
	dir     string
	self    membership.Host
	runs    func() []membership.Host // the other live runs of this host, as gossip tells
	met     func() bool              // another host was met
	answers func(ctx context.Context, other membership.Host) bool

	serving bool      // this process answers at its address, so that another one that answers there is found
	joined  time.Time // when another host was met; zero: none was
	beside  time.Time // since when a newer run answers; zero: none does
}

func newCopies(res *resources, join []string) *copies {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: copyLook}
	return &copies{
		dir: res.dir.path, self: res.self, runs: res.gossip.OtherRuns, met: newJoiner(res, join).met,
		answers: func(ctx context.Context, other membership.Host) bool {
			return peer.Answers(ctx, client, other.Address, other.ID, other.Run)
		},
	}
}

// check is why this process must not hold the metadata, by what answers just now: CodeConflict.
func (c *copies) check(ctx context.Context, now time.Time) error {
	if c.joined.IsZero() && c.met() {
		c.joined = now
	}
	doubtful := c.joined.IsZero() || now.Sub(c.joined) < copyDoubt
	beside := false
	for _, other := range c.runs() {
		older := bytes.Compare(other.Run.ID[:], c.self.Run.ID[:]) < 0
		if other.Address == c.self.Address && !c.serving || older && !doubtful || !c.answers(ctx, other) {
			continue
		}
		if older {
			return core.Errorf(core.CodeConflict, "host %s at %s has the id of this host and holds the metadata already: data directory %s is a copy of its directory, or the other way round; "+
				"the older process counts, so that this one ends; start no second one, or stop that process first, if this directory has the right metadata", other.ID, other.Address, c.dir)
		}
		beside = true
		switch {
		case c.beside.IsZero():
			c.beside = now
		case now.Sub(c.beside) >= copyGrace:
			return core.Errorf(core.CodeConflict, "a newer process of host %s at %s holds the metadata: it runs on a copy of data directory %s, and began while this process did not answer; "+
				"all hosts follow it, so that this one ends; compare the two directories, and start one of them", other.ID, other.Address, c.dir)
		}
	}
	if !beside {
		c.beside = time.Time{}
	}
	return nil
}
