package catalog

import (
	"iter"
	"slices"
	"time"
	"unique"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// entry is an Extent as the catalog keeps it, in a third of its size: a controller keeps all live extents. Values that
// many extents have in common are kept once for all of them, and values that few extents have are kept apart.
type entry struct {
	id       core.ExtentID
	queue    core.QueueID
	token    core.WriterToken
	origin   unique.Handle[origin]
	state    unique.Handle[core.ExtentState]
	replicas *places
	holders  *places
	rare     *rare // nil: the zero one
	created  instant
	kept     instant
	floor    core.Seq
	l        core.Seq
	bytes    uint64
	version  uint64
	prev     *entry // see siblings
	next     *entry
	checksum uint32
	told     bool
	released bool
	made     bool
}

// origin is what the extents of a writer have in common.
type origin struct {
	kind       core.ExtentKind
	durability core.Durability
	horizon    core.Horizon
	writer     HostRun
	wanted     int
}

// rare has the values that are zero for most extents: sealed or open ones of AP queues, in their own queue, and
// complete.
type rare struct {
	chain    uint64
	before   core.ExtentID
	first    core.Home
	home     core.Home
	minority metadata.Maker
	rate     int
	removed  uint64
	lostFrom core.Seq
	forced   bool
	spent    bool
	less     bool // heldTo and heldSum count; else they are the end and its checksum
	heldTo   core.Seq
	heldSum  uint32
}

// instant is a time.Time in UTC, without the pointer to its zone.
type instant struct {
	second int64
	nano   uint32
}

func instantOf(t time.Time) instant { return instant{t.Unix(), uint32(t.Nanosecond())} }

func (i instant) time() time.Time { return time.Unix(i.second, int64(i.nano)).UTC() }

// set makes the entry that of an extent. Its siblings stay.
func (at *entry) set(e *Extent, lists *placesTable) {
	at.id, at.queue, at.token = e.ID, e.Queue, e.Token
	at.origin = unique.Make(origin{e.Kind, e.Durability, e.Horizon, HostRun{e.Input, e.InputRun}, e.Wanted})
	at.state = unique.Make(e.State)
	at.replicas, at.holders = lists.of(e.Replicas, e.Disks), lists.ofPlaces(e.Holders)
	at.created, at.kept = instantOf(e.Created), instantOf(e.Kept)
	at.floor, at.l, at.bytes, at.version, at.checksum = e.Floor, e.L, e.Bytes, e.Version, e.Checksum
	at.told, at.released, at.made = e.Told, e.Released, e.Made
	r := rare{
		chain: e.Chain, before: e.Before, first: e.ExtentRecord.Home, home: e.Home, minority: e.Minority,
		rate: e.Rate, removed: e.Removed, lostFrom: e.LostFrom, forced: e.Forced, spent: e.Spent,
	}
	if e.HeldTo != e.L || e.HeldSum != e.Checksum {
		r.less, r.heldTo, r.heldSum = true, e.HeldTo, e.HeldSum
	}
	switch {
	case r == rare{}:
		at.rare = nil
	case at.rare == nil || *at.rare != r:
		at.rare = &r
	}
}

// tuple is that of the extent. Its lists are shared, and never changed in place.
func (at *entry) tuple() core.Extent { return at.tupleOf(at.origin.Value()) }

// tupleOf is tuple for a caller that has the origin, which is read from where no other entry is.
func (at *entry) tupleOf(o origin) core.Extent {
	return core.Extent{
		ID: at.id, Queue: at.queue, Kind: o.kind, Durability: o.durability, Input: o.writer.Host, InputRun: o.writer.Run,
		Token: at.token, Replicas: at.replicas.hosts, Disks: at.replicas.disks, Chain: at.chain(), Horizon: o.horizon,
	}
}

func (at *entry) chain() uint64 {
	if at.rare == nil {
		return 0
	}
	return at.rare.chain
}

// extent is what was set. Its lists are shared, and never changed in place.
func (at *entry) extent() Extent {
	o := at.origin.Value()
	e := Extent{
		ExtentRecord: metadata.ExtentRecord{Extent: at.tupleOf(o), Created: at.created.time(), Wanted: o.wanted},
		State:        at.state.Value(), Floor: at.floor, L: at.l, Bytes: at.bytes, Checksum: at.checksum, Version: at.version,
		Kept: at.kept.time(), Holders: at.holders.all, Told: at.told, HeldTo: at.l, HeldSum: at.checksum,
		Released: at.released, Made: at.made,
	}
	if r := at.rare; r != nil {
		e.Before, e.ExtentRecord.Home, e.Minority = r.before, r.first, r.minority
		e.Home, e.Rate, e.Removed, e.LostFrom, e.Forced, e.Spent = r.home, r.rate, r.removed, r.lostFrom, r.forced, r.spent
		if r.less {
			e.HeldTo, e.HeldSum = r.heldTo, r.heldSum
		}
	}
	return e
}

// siblings are a set of entries, as a list through them. An entry is in one set at most.
type siblings struct{ first *entry }

func (s *siblings) add(at *entry) {
	if at.next = s.first; at.next != nil {
		at.next.prev = at
	}
	s.first = at
}

func (s *siblings) remove(at *entry) {
	if at.prev != nil {
		at.prev.next = at.next
	} else {
		s.first = at.next
	}
	if at.next != nil {
		at.next.prev = at.prev
	}
	at.prev, at.next = nil, nil
}

func (s siblings) each(yield func(*entry) bool) {
	for at := s.first; at != nil; at = at.next {
		if !yield(at) {
			return
		}
	}
}

// sorted are extents, oldest first.
func sorted(all ...iter.Seq[*entry]) []Extent {
	out := []Extent{}
	for _, some := range all {
		for at := range some {
			out = append(out, at.extent())
		}
	}
	slices.SortFunc(out, func(a, b Extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
}
