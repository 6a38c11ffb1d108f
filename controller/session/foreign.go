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
	// awayFor is from when a controller, for which this one stood back, no longer counts after it has left the membership.
	// A restart takes less.
	awayFor = 10 * time.Minute
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

	told      core.Recurring // the log was told of one with other metadata
	stoodBack bool           // this controller stood back then
}

// peer is a controller of the membership.
type peer struct {
	run     core.RunID
	same    bool      // it uses these metadata
	other   bool      // it uses other ones
	claimed time.Time // when it said last that it holds a lease which the metadata here lack
	first   time.Time // when it did first; zero: it does not
	claims  int
	since   time.Time // as foreign.since, by what it said
	yields  time.Time // since when this controller is to stand back for it; zero: it is not
	obeyed  bool      // this controller stands back for the host
	shown   time.Time // when the membership had it last
}

// meet takes in which controllers the membership has, and answers those that are to be asked.
func (f *foreign) meet(peers []Peer, now time.Time) (due []Peer) {
	if f.peers == nil {
		f.peers = make(map[core.HostID]*peer)
	}
	for _, p := range peers {
		x := f.peers[p.Host]
		if x == nil {
			x = &peer{}
			f.peers[p.Host] = x
		}
		if x.run != p.Run {
			*x = peer{run: p.Run, obeyed: x.obeyed}
		}
		if x.shown = now; !x.same {
			due = append(due, p)
		}
	}
	for id, x := range f.peers {
		if !x.shown.Equal(now) && (!x.obeyed || now.Sub(x.shown) >= awayFor) {
			delete(f.peers, id)
		}
	}
	return due
}

// silent takes an answer by which a controller holds no lease.
func (f *foreign) silent(p Peer) {
	if x := f.peers[p.Host]; x != nil && x.run == p.Run {
		x.claimed, x.first, x.claims = time.Time{}, time.Time{}, 0
	}
}

// shares takes in that the lease of a controller is in the metadata here.
func (f *foreign) shares(p Peer, since time.Time) {
	x := f.peers[p.Host]
	if x == nil || x.run != p.Run {
		return
	}
	*x = peer{run: x.run, same: true, shown: x.shown}
	if !since.IsZero() && (f.since.IsZero() || since.Before(f.since)) {
		f.since = since
	}
}

// claims takes in that a controller said it holds a lease; the metadata here answered after that, and lack it.
func (f *foreign) claims(p Peer, since, now time.Time) {
	x := f.peers[p.Host]
	if x == nil || x.run != p.Run || x.same {
		return
	}
	if x.first.IsZero() {
		x.first = now
	}
	x.claimed, x.since, x.claims = now, since, x.claims+1
	x.other = x.other || x.claims >= foreignClaims && now.Sub(x.first) >= foreignFor
}

// outranks reports whether this controller goes on beside one with other metadata. Of two at most one does.
func (f *foreign) outranks(x *peer) bool {
	return !f.since.IsZero() && f.since.Add(margin).Before(x.since)
}

// stands is what a controller does about those with other metadata.
type stands struct {
	back bool        // it takes no lease, and gives back its own
	host core.HostID // for that one, or beside that one; empty: there is none that is known to have other metadata
	run  core.RunID
}

// decide what to do. A controller that holds no lease waits until it knows what metadata a claim is about.
func (f *foreign) decide(now time.Time, holds bool) stands {
	var waits bool
	var obeyed, beside stands
	for id, x := range f.peers {
		claims := !x.claimed.IsZero() && now.Sub(x.claimed) < claimFor
		obeys := claims && !f.outranks(x)
		switch {
		case f.outranks(x):
			x.yields = time.Time{}
		case x.yields.IsZero() && claims && x.other:
			x.yields = now
		}
		x.obeyed = x.obeyed || !x.yields.IsZero() && (!holds || now.Sub(x.yields) >= obeyAfter)
		waits = waits || obeys && !holds
		switch first := func(d stands) bool { return d.host == "" || id < d.host }; {
		case x.obeyed && first(obeyed):
			obeyed = stands{true, id, x.run}
		case x.other && claims && first(beside):
			beside = stands{false, id, x.run}
		}
	}
	switch {
	case obeyed.back:
		f.since = time.Time{}
		return obeyed
	case waits:
		return stands{back: true}
	}
	return beside
}
