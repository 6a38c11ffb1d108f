package ws

import (
	"context"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// Limits of the connections of one kind that a host takes; all above zero.
type Limits struct {
	Connections   int // of the host
	Streams       int // of the host
	PerConnection int // streams of one connection
}

// fewStreams is how many streams any connection may open while its address has any left.
const fewStreams = 16

// openingsAtOnce is how many streams of one kind are opened at once on a host. Openings that wait for the metadata need
// many, to be opened by the thousand a second. Openings that compute need few: the scheduler serves all goroutines in
// turn, so more keep everybody else from the processors.
const openingsAtOnce = 64

// refusedFor is how long an address gets no connection after one was ended for a flood.
const refusedFor = time.Second

// Admission decides which connections and streams a host takes, and opens its streams. Each kind of connection has its
// own, so that clients of one kind never take the room of another. Safe for concurrent use.
//
// A remote address may hold at most as many connections, and as many streams, as are free. So one address takes no more
// than half, two take a third each, and whoever comes next finds room. The connections of one address share its streams
// by the same rule, and the last of these streams, a sixteenth of the host's, are for connections with few. All
// in-process connections are of one address, as are all of an IPv6 /64.
//
// It also bounds the memory of messages that are being received: see receiveRoom.
type Admission struct {
	limits Limits
	spawn  func(f func(ctx context.Context)) bool
	mu     struct {
		sync.Mutex
		connections int
		streams     int
		addresses   map[netip.Prefix]*remote
		working     int
		turns       []*place // those with openings that wait, each once

		places   map[*place]struct{}
		received int64                      // bytes of half-received messages
		waiting  []*remote                  // addresses with messages that wait for room
		pressing bool                       // press is due; it is while there are any
		exempt   *place                     // the message that goes on without room, if there is one
		refused  map[netip.Prefix]time.Time // addresses that sent a flood, and until when they are refused
	}
}

// remote is what one address holds. Its Admission guards it.
type remote struct {
	at          netip.Prefix
	connections int
	streams     int
	received    int64
	moving      int           // messages that hold room and do not wait for more
	waiting     []*roomWaiter // messages that wait for room, the oldest first
	least       int64         // none of them wants less; room for it is worth a look
}

// place is what one connection holds. Its Admission guards it.
type place struct {
	a        *Admission
	from     *remote
	conn     *Conn // set before anything is received
	streams  int
	left     bool
	openings []func(ctx context.Context) // that wait for their turn
	received int64                       // what the message that arrives holds
	waits    bool                        // for room
	moves    bool                        // counts in moving
}

// NewAdmission makes an Admission. spawn runs a function on a goroutine whose context ends when the host stops, or
// answers false when it has stopped.
func NewAdmission(l Limits, spawn func(f func(ctx context.Context)) bool) *Admission {
	a := &Admission{limits: l, spawn: spawn}
	a.mu.addresses = make(map[netip.Prefix]*remote)
	a.mu.places = make(map[*place]struct{})
	a.mu.refused = make(map[netip.Prefix]time.Time)
	return a
}

// addressOf is the address that counts for a connection from host:port. All peers without an IP address count as one
// address.
func addressOf(hostPort string) netip.Prefix {
	at, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// connect takes a connection in; CodeThrottled when its address has too many, or has just sent a flood.
func (a *Admission) connect(hostPort string) (*place, error) {
	at := addressOf(hostPort)
	a.mu.Lock()
	defer a.mu.Unlock()
	if until, flooded := a.mu.refused[at]; flooded && time.Now().Before(until) {
		return nil, core.Errorf(core.CodeThrottled, "a connection from this address has just sent a flood of frames; connect again in %s", refusedFor)
	}
	from := a.mu.addresses[at]
	if from == nil {
		from = &remote{at: at}
	}
	if from.connections >= a.limits.Connections-a.mu.connections {
		return nil, core.Errorf(core.CodeThrottled, "%d of at most %d connections are in use, %d of them from this address, which gets no more for now; "+
			"use fewer connections with more streams, or another host", a.mu.connections, a.limits.Connections, from.connections)
	}
	a.mu.addresses[at] = from
	from.connections++
	a.mu.connections++
	p := &place{a: a, from: from}
	a.mu.places[p] = struct{}{}
	return p, nil
}

// flooded refuses the address new connections for a while: to connect again at once would make a flood of what it has
// at the beginning.
func (p *place) flooded() {
	now := time.Now()
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.mu.refused, func(_ netip.Prefix, until time.Time) bool { return !now.Before(until) })
	a.mu.refused[p.from.at] = now.Add(refusedFor)
}

// leave gives back everything that the connection holds.
func (p *place) leave() {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	p.left, p.openings = true, nil
	delete(a.mu.places, p)
	if p.waits {
		p.waits = false
		i := slices.IndexFunc(p.from.waiting, func(w *roomWaiter) bool { return w.place == p })
		a.dequeueLocked(p.from, i, i+1)
	}
	p.releaseLocked()
	p.giveBackLocked(p.streams)
	a.mu.connections--
	if p.from.connections--; p.from.connections == 0 {
		delete(a.mu.addresses, p.from.at)
	}
}

// open takes a stream in; CodeThrottled when the connection, its address or the host has too many.
func (p *place) open() error {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.streams >= a.limits.PerConnection {
		return core.Errorf(core.CodeThrottled, "the connection has %d streams, which is the limit; use another connection for more", p.streams)
	}
	left := a.limits.Streams - a.mu.streams - p.from.streams // to the address
	if left <= 0 || p.streams >= fewStreams && (p.streams >= left || left <= a.limits.Streams/8) {
		return core.Errorf(core.CodeThrottled, "%d of at most %d streams are in use, %d of them from this address and %d on this connection, which gets no more for now; "+
			"use another host", a.mu.streams, a.limits.Streams, p.from.streams, p.streams)
	}
	p.streams++
	p.from.streams++
	a.mu.streams++
	return nil
}

// close gives a stream back.
func (p *place) close() {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if !p.left {
		p.giveBackLocked(1)
	}
}

func (p *place) giveBackLocked(streams int) {
	p.streams -= streams
	p.from.streams -= streams
	p.a.mu.streams -= streams
}

// do runs f on another goroutine when it is the connection's turn. f is dropped when the connection ends first.
// CodeThrottled when too many wait already, CodeDraining when the host has stopped.
func (p *place) do(f func(ctx context.Context)) error {
	a := p.a
	a.mu.Lock()
	if len(p.openings) >= a.limits.PerConnection {
		a.mu.Unlock()
		return core.Errorf(core.CodeThrottled, "%d streams of the connection wait to be opened; open fewer at once", len(p.openings))
	}
	if p.left {
		a.mu.Unlock()
		return nil
	}
	p.openings = append(p.openings, f)
	if len(p.openings) == 1 {
		a.mu.turns = append(a.mu.turns, p)
	}
	more := a.mu.working < openingsAtOnce
	if more {
		a.mu.working++
	}
	a.mu.Unlock()
	if more && !a.spawn(a.work) {
		a.mu.Lock()
		a.mu.working--
		a.mu.Unlock()
		return core.Errorf(core.CodeDraining, "the host is stopping; use another")
	}
	return nil
}

// work opens streams until none waits.
func (a *Admission) work(ctx context.Context) {
	for f := a.next(); f != nil; f = a.next() {
		f(ctx)
		runtime.Gosched() // to those who have waited: openings that compute would take ten milliseconds each time
	}
}

// next is the next opening, nil when there is none: the connections take turns.
func (a *Admission) next() func(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.mu.turns) > 0 {
		p := a.mu.turns[0]
		a.mu.turns[0], a.mu.turns = nil, a.mu.turns[1:]
		if len(p.openings) == 0 { // its connection has ended
			continue
		}
		f := p.openings[0]
		p.openings[0], p.openings = nil, p.openings[1:]
		if len(p.openings) > 0 {
			a.mu.turns = append(a.mu.turns, p)
		}
		return f
	}
	a.mu.working--
	return nil
}
