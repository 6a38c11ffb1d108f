package session

import (
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// foreignFor and foreignClaims are for how long, and how often, another controller says that it holds a lease which
	// the metadata here lack, until it counts as one with other metadata. A holder has renewed its lease meanwhile.
	foreignFor    = 10 * time.Second
	foreignClaims = 5
	// obeyAfter is from when a holder gives way, once it knows that the other one has other metadata: that one knows so by
	// then, too. Else, of two that cannot be told apart, the one that is slower to know it would go on.
	obeyAfter = 10 * time.Second
	// claimFor is for how long what a controller says of its lease counts.
	claimFor = 10 * time.Second
	// margin is by how much longer than the others' a cluster of controllers has to have held leases to go on.
	margin = time.Minute
	// goneFor is from when a controller that has left the membership is forgotten, and awayFor the same for one for which
	// this one stood back. A restart takes less.
	goneFor, awayFor = time.Minute, 10 * time.Minute
	// mostAway is how much of either passes from one inquiry to the next at most: this process may have been paused.
	mostAway = 3 * inquireEvery
)

// Peer is a run of another controller in the membership.
type Peer struct {
	Host core.HostID
	Run  core.RunID
}

// Holding is what a controller says of its session lease.
type Holding struct {
	Term    uint64        // 0: it holds none
	Counter uint64        // of the row, as it was written last
	Age     time.Duration // for how long it, or a controller before it in the same metadata, has held leases
}

// foreign is what one controller knows of those that may use other metadata than it does, such as a copy of them. It
// has no clock and does no I/O.
//
//	                  its lease is in the metadata here
//	unknown ──────────────────────────────────────────────────▶ same
//	   └──claims a lease that they lack, for foreignFor──▶ other
//
// A run uses the same metadata until it ends, so both are for good.
type foreign struct {
	since time.Time // since when this controller, or one before it in the same metadata, has held leases; zero: none has
	peers map[core.HostID]*peer
	met   time.Time // when it was known last which controllers the membership has

	told core.Recurring // the log was told of one with other metadata
	said course         // the log was told so
}

// peer is a controller of the membership.
type peer struct {
	run      core.RunID
	same     bool      // it uses these metadata
	other    bool      // it uses other ones
	answered time.Time // when it said last whether it holds a lease
	claimed  time.Time // when it said last that it holds one which the metadata here lack
	first    time.Time // when it did first; zero: it does not
	claims   int
	since    time.Time     // as foreign.since, by what it said
	yields   time.Time     // since when this controller is to stand back for the host; zero: it is not
	obeyed   bool          // this controller stands back for the host
	away     time.Duration // for how long the membership has lacked it
}

// meet takes in which controllers the membership has, and answers those that are to be asked.
func (f *foreign) meet(peers []Peer, now time.Time) (due []Peer) {
	if f.peers == nil {
		f.peers = make(map[core.HostID]*peer)
	}
	passed := min(now.Sub(f.met), mostAway)
	f.met = now
	for _, x := range f.peers {
		x.away += passed
	}
	for _, p := range peers {
		x := f.peers[p.Host]
		if x == nil {
			x = &peer{}
			f.peers[p.Host] = x
		}
		if x.run != p.Run {
			*x = peer{run: p.Run, obeyed: x.obeyed, yields: x.yields, since: x.since}
		}
		if x.away = 0; !x.same {
			due = append(due, p)
		}
	}
	for id, x := range f.peers {
		if x.away >= awayFor || x.away >= goneFor && !x.obeyed {
			delete(f.peers, id)
		}
	}
	return due
}

// hears takes in that a controller has answered, and whether it holds a lease.
func (f *foreign) hears(p Peer, holds bool, now time.Time) {
	x := f.peers[p.Host]
	if x == nil || x.run != p.Run {
		return
	}
	if x.answered = now; !holds {
		x.claimed, x.first, x.claims = time.Time{}, time.Time{}, 0
	}
}

// shares takes in that the lease of a controller is in the metadata here.
func (f *foreign) shares(p Peer, since time.Time) {
	x := f.peers[p.Host]
	if x == nil || x.run != p.Run {
		return
	}
	*x = peer{run: x.run, same: true, away: x.away}
	if !since.IsZero() && (f.since.IsZero() || since.Before(f.since)) {
		f.since = since
	}
}

// claims takes in that a controller said it holds a lease; the metadata here answered after that, and lack it. The age
// of an earlier run counts for the host as long as this controller is to stand back for it.
func (f *foreign) claims(p Peer, since, now time.Time) {
	x := f.peers[p.Host]
	if x == nil || x.run != p.Run || x.same {
		return
	}
	if x.first.IsZero() {
		x.first = now
	}
	if x.yields.IsZero() && !x.obeyed || x.since.IsZero() || since.Before(x.since) {
		x.since = since
	}
	x.claimed, x.claims = now, x.claims+1
	x.other = x.other || x.claims >= foreignClaims && now.Sub(x.first) >= foreignFor
}

// corrected forgets that this controller stands back for runs that renew leases in the metadata here. They may be of a
// version that says nothing of its lease.
func (f *foreign) corrected(m *members) {
	for _, x := range f.peers {
		if (x.obeyed || !x.yields.IsZero()) && m.renews(x.run) {
			*x = peer{run: x.run, away: x.away}
		}
	}
}

// outranks reports whether this controller goes on beside one with other metadata. Of two at most one does.
func (f *foreign) outranks(x *peer) bool {
	return !f.since.IsZero() && f.since.Add(margin).Before(x.since)
}

// course is what a controller does beside those with other metadata.
type course int

const (
	acts   course = iota
	yields        // it acts, and gives its lease back in a moment
	waits         // it takes no lease until it knows what metadata a claim is about
	back          // it stands back: it takes no lease, and gives back its own
)

// stands is a course, and the controller because of which it is taken; with acts it may be empty.
type stands struct {
	course
	Peer
}

// idle reports whether the controller does nothing.
func (d stands) idle() bool { return d.course >= waits }

// decide what to do. colleagues tells that another controller holds a lease in the metadata here.
func (f *foreign) decide(now time.Time, holds, colleagues bool) (d stands) {
	for id, x := range f.peers {
		claims := !x.claimed.IsZero() && now.Sub(x.claimed) < claimFor
		switch {
		case f.outranks(x): // it may have learned only now how old its own cluster is
			x.yields, x.obeyed = time.Time{}, false
		case x.yields.IsZero() && claims && x.other:
			x.yields = now
		}
		x.obeyed = x.obeyed || x.due(now, holds)
		course := acts
		switch {
		case x.obeyed:
			course = back
		case claims && !holds && !f.outranks(x):
			course = waits
		case !claims || !x.other:
			continue
		case !x.yields.IsZero():
			course = yields
		}
		if d.Host == "" || course > d.course || course == d.course && id < d.Host {
			d = stands{course, Peer{id, x.run}}
		}
	}
	if d.course == back && !holds && !colleagues {
		f.since = time.Time{} // no lease is held in the metadata here
	}
	return d
}

// due reports whether the time has come to give way to a host, as this controller is to. It has to be there still.
func (x *peer) due(now time.Time, holds bool) bool {
	if x.yields.IsZero() || now.Sub(x.answered) >= claimFor {
		return false
	}
	return !holds || x.answered.Sub(x.yields) >= obeyAfter
}
