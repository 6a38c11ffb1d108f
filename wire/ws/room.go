package ws

import (
	"cmp"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// Memory for the messages that the connections of an Admission receive. It is counted from the first bytes of a message
// until its last one has come: the handler bounds what it keeps.
//
// A peer sends messages of up to 1 MiB, unless one record is larger. So 48 MiB let 48 connections be in the middle of
// such a message at once, and the three quarters of one address hold two of the largest messages. The hosts of a
// process have 144 MiB together, and garbage makes it twice as much.
const (
	receiveRoom = 48 << 20
	// uncounted is what each message may take without being counted: 8,192 connections of one address hold 128 MiB that
	// way. Small messages never wait.
	uncounted = 16 << 10
	// roomWait is how long a message waits for room. Its sender gives up at the same time.
	roomWait = writeTimeout
	// exemptAfter is how long a message waits before it may go on without room. One at a time may: else messages that all
	// hold a part and wait for more would wait for each other.
	exemptAfter = time.Second // at once when all messages of its address wait
	// pressEvery is how often slow messages are looked for while others wait.
	pressEvery = 100 * time.Millisecond
	// signEvery is how often a message that waits gives its sender a sign of life. Publishers count a host as lost after 3
	// s.
	signEvery = time.Second
)

var errNoRoom = core.Errorf(core.CodeThrottled, "the host holds as many bytes of half-received messages as it may, and none became free for %s; "+
	"connect again, or to another host", roomWait)

// roomWaiter is a message that waits for n bytes.
type roomWaiter struct {
	place *place
	n     int64
	since time.Time
	ready chan error // buffered
}

// reserve takes n more bytes for the message that arrives, and waits for room until the connection has ended.
// CodeThrottled: there was none in time. Only the reader goroutine calls it, take and release.
func (p *place) reserve(n int64, ended <-chan struct{}) error {
	a := p.a
	a.mu.Lock()
	if p.left {
		a.mu.Unlock()
		return errClosed
	}
	if p.takeLocked(n) {
		a.mu.Unlock()
		return nil
	}
	w := &roomWaiter{place: p, n: n, since: time.Now(), ready: make(chan error, 1)}
	p.waits = true
	p.moveLocked()
	a.enqueueLocked(w)
	a.serveLocked(w.since) // it may be the last of its address that moved
	if !a.mu.pressing {
		a.mu.pressing = true
		time.AfterFunc(pressEvery, a.press)
	}
	a.mu.Unlock()
	return w.wait(ended)
}

// wait returns when there is room, or when none became free in time.
func (w *roomWaiter) wait(ended <-chan struct{}) error {
	c := w.place.conn
	sign := time.NewTicker(signEvery)
	defer sign.Stop()
	for {
		select {
		case err := <-w.ready:
			if err != nil {
				return err
			}
			c.lived.at = time.Time{} // the read deadline may have passed meanwhile
			return c.lived.extend(c.ws, time.Now())
		case <-sign.C:
			c.Ping() // the pings of the peer are not read, so nothing answers them
		case <-ended: // leave has removed it
			return errClosed
		}
	}
}

// take is reserve without a wait; false: there is no room.
func (p *place) take(n int64) bool {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return !p.left && p.takeLocked(n)
}

// release gives back all that the message holds.
func (p *place) release() {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.releaseLocked()
}

func (p *place) takeLocked(n int64) bool {
	a := p.a
	if a.mu.exempt == p {
		return true
	}
	if !a.fitsLocked(p.from, n) {
		return false
	}
	p.received += n
	p.from.received += n
	a.mu.received += n
	p.moveLocked()
	return true
}

// fitsLocked reports whether there is room for n more bytes of an address.
func (a *Admission) fitsLocked(r *remote, n int64) bool {
	return a.mu.received+n <= receiveRoom && r.received+n <= receiveRoom/4*3
}

// moveLocked counts the connection among those that move, or not.
func (p *place) moveLocked() {
	moves := p.received > 0 && !p.waits
	switch {
	case moves && !p.moves:
		p.from.moving++
	case !moves && p.moves:
		p.from.moving--
	}
	p.moves = moves
}

func (p *place) releaseLocked() {
	a := p.a
	a.mu.received -= p.received
	p.from.received -= p.received
	p.received = 0
	p.moveLocked()
	if a.mu.exempt == p {
		a.mu.exempt = nil
	}
	if len(a.mu.waiting) > 0 {
		a.serveLocked(time.Now())
	}
}

// enqueueLocked adds w to the messages that wait.
func (a *Admission) enqueueLocked(w *roomWaiter) {
	r := w.place.from
	if len(r.waiting) == 0 {
		a.mu.waiting = append(a.mu.waiting, r)
		r.least = w.n
	}
	r.waiting = append(r.waiting, w)
	r.least = min(r.least, w.n)
}

// dequeueLocked removes the messages i to j of an address.
func (a *Admission) dequeueLocked(r *remote, i, j int) {
	if r.waiting = slices.Delete(r.waiting, i, j); len(r.waiting) == 0 {
		r.waiting = nil
		at := slices.Index(a.mu.waiting, r)
		a.mu.waiting = slices.Delete(a.mu.waiting, at, at+1)
	}
}

// serveLocked gives room to waiting messages: to the address that holds least, and of its messages to the oldest that
// fits. It exempts one if none is. It looks at the messages of an address only when there is room for one: else
// thousands that wait would make each one that comes dear.
func (a *Admission) serveLocked(now time.Time) {
	for r := a.nextLocked(); r != nil; r = a.nextLocked() {
		i := slices.IndexFunc(r.waiting, func(w *roomWaiter) bool { return a.fitsLocked(r, w.n) })
		if i < 0 { // the one that wanted least has gone
			r.least = slices.MinFunc(r.waiting, func(w, other *roomWaiter) int { return cmp.Compare(w.n, other.n) }).n
			continue
		}
		w := r.waiting[i]
		a.dequeueLocked(r, i, i+1)
		w.place.takeLocked(w.n)
		w.end(now, nil)
	}
	if a.mu.exempt == nil {
		a.exemptLocked(now)
	}
}

// nextLocked is the address that holds least of those with a message that may fit; nil: there is none.
func (a *Admission) nextLocked() (next *remote) {
	for _, r := range a.mu.waiting {
		if a.fitsLocked(r, r.least) && (next == nil || r.received < next.received) {
			next = r
		}
	}
	return next
}

// exemptLocked lets the oldest message of the address that holds least go on without room.
func (a *Admission) exemptLocked(now time.Time) {
	var first *roomWaiter
	for _, r := range a.mu.waiting {
		w := r.waiting[0]
		if now.Sub(w.since) < exemptAfter && r.moving > 0 {
			continue
		}
		if first == nil || cmp.Or(cmp.Compare(r.received, first.place.from.received), w.since.Compare(first.since)) < 0 {
			first = w
		}
	}
	if first != nil {
		a.mu.exempt = first.place
		a.dequeueLocked(first.place.from, 0, 1)
		first.end(now, nil)
	}
}

// end ends the wait. The time that it took does not count as the sender's.
func (w *roomWaiter) end(now time.Time, err error) {
	w.place.waits = false
	w.place.moveLocked()
	w.place.conn.lived.pause(now.Sub(w.since))
	w.ready <- err
}

// press looks after the messages that wait: it refuses those that have waited long enough, and ends slow messages that
// are in the way.
func (a *Admission) press() {
	now := time.Now()
	a.mu.Lock()
	a.serveLocked(now)
	for _, r := range slices.Clone(a.mu.waiting) {
		late := 0 // of the oldest
		for ; late < len(r.waiting) && now.Sub(r.waiting[late].since) >= roomWait; late++ {
			r.waiting[late].end(now, errNoRoom)
		}
		a.dequeueLocked(r, 0, late)
	}
	slow := a.slowLocked(now)
	if a.mu.pressing = len(a.mu.waiting) > 0; a.mu.pressing {
		time.AfterFunc(pressEvery, a.press)
	}
	a.mu.Unlock()
	for _, c := range slow {
		c.cutShort()
	}
}

// slowLocked returns the connections whose message comes too slowly while others wait for its room: those of an address
// that has its share and wants more, those of the address that holds most when the whole room is full, and the exempt
// one.
func (a *Admission) slowLocked(now time.Time) (slow []*Conn) {
	if len(a.mu.waiting) == 0 {
		return nil
	}
	crowded := make(map[*remote]bool)
	full := false
	for _, r := range a.mu.waiting {
		if a.mu.received+r.waiting[0].n <= receiveRoom {
			crowded[r] = true
		} else {
			full = true
		}
	}
	if full {
		crowded[a.mostLocked()] = true
	}
	for p := range a.mu.places {
		holds := p.received > 0 && crowded[p.from] || p == a.mu.exempt
		if holds && !p.waits && p.conn.lived.slow(now) {
			slow = append(slow, p.conn)
		}
	}
	return slow
}

// mostLocked is the address that holds most.
func (a *Admission) mostLocked() (most *remote) {
	for _, r := range a.mu.addresses {
		if most == nil || r.received > most.received {
			most = r
		}
	}
	return most
}
