package client

import (
	"slices"
	"sync"
	"time"
)

// lockTerms is the group's lock timeout as the host of one stream tells it. A host locks each message for the timeout
// that it knows at the delivery; a change moves no lock that runs. Hosts learn of a change seconds apart. Immutable.
type lockTerms struct {
	timeout time.Duration
	changed int64 // on the consumer's clock: when the host told another timeout last; 0: never
	// least and most bound the timeout of a delivery that arrives around that change.
	least, most time.Duration
}

// relockDoubt is for how long before and after the notice of a change it is not known which timeout a delivery was
// locked for: a host sends the notice and its deliveries in any order.
const relockDoubt = int64(10 * time.Second)

// told is the terms after the host has told a timeout; t may be nil.
func (t *lockTerms) told(timeout time.Duration, now int64) *lockTerms {
	switch {
	case t == nil:
		return &lockTerms{timeout: timeout, least: timeout, most: timeout}
	case timeout == t.timeout:
		return t
	}
	next := &lockTerms{timeout: timeout, changed: now, least: min(timeout, t.timeout), most: max(timeout, t.timeout)}
	if t.changed > 0 && now-t.changed < relockDoubt {
		next.least, next.most = min(next.least, t.least), max(next.most, t.most)
	}
	return next
}

// longestLock is the longest lock timeout of the stream's deliveries, as far as is known.
func (s *consumeStream) longestLock() time.Duration {
	if t := s.terms.Load(); t != nil {
		return t.most
	}
	return 0
}

// locked bounds for how long the host has locked the slab's messages. It locks them for least at any rate; most is more
// around a change only.
func (s *slab) locked() (least, most time.Duration) {
	if t := s.stream.terms.Load(); t != nil && t.changed > 0 {
		if age := s.stream.con.at(s.received) - t.changed; -relockDoubt < age && age < relockDoubt {
			return t.least, t.most
		}
	}
	return s.timeout, s.timeout
}

// lockedUntil is when the lock of the slab's messages ends unless it is extended, on the consumer's clock.
func (s *slab) lockedUntil() (until, most int64) {
	received := s.stream.con.at(s.received)
	least, longest := s.locked()
	return received + int64(least), received + int64(longest)
}

// lock is where the lock of a delivery stands after it was extended. Times are on the consumer's clock.
type lock struct {
	mu      sync.Mutex
	until   int64 // by the last extension
	sure    int64 // by those that a host has granted
	pending []extension
}

// extension is one that no host has answered.
type extension struct{ asked, until int64 }

// maxPending bounds the unanswered extensions of a delivery that are remembered. Of more, the last one stands for all
// after the others: the first ones are answered first.
const maxPending = 4

// extending notes an extension that is about to be sent.
func (d *Delivery) extending(by time.Duration) {
	l := d.lock.Load()
	if l == nil {
		l = &lock{}
		_, l.sure = d.slab.lockedUntil()
		if !d.lock.CompareAndSwap(nil, l) {
			l = d.lock.Load()
		}
	}
	s := d.slab.stream
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settleLocked(s)
	now := s.con.now()
	l.until = now + int64(by)
	l.pending = append(l.pending[:min(len(l.pending), maxPending-1)], extension{now, l.until})
}

// settleLocked takes over which extensions the stream's host has confirmed. The last one of them is what the host goes
// by.
func (l *lock) settleLocked(s *consumeStream) {
	confirmed, n := s.out.confirmed.Load(), 0
	for n < len(l.pending) && l.pending[n].asked <= confirmed {
		l.sure = l.pending[n].until
		n++
	}
	l.pending = slices.Delete(l.pending, 0, n)
}

// lockEnds is when the lock ends by what was asked for, and by what is known to be granted. Around a change of the lock
// timeout until goes by the shorter one, so that the lock is extended in time, and sure by the longer one: the answer
// to the extension tells whether it is lost.
func (d *Delivery) lockEnds() (until, sure int64) {
	l := d.lock.Load()
	if l == nil {
		return d.slab.lockedUntil()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settleLocked(d.slab.stream)
	return l.until, l.sure
}

// extended notes that an owner of the extent has granted a lock until then.
func (d *Delivery) extended(until int64) {
	if l := d.lock.Load(); l != nil {
		l.mu.Lock()
		l.sure = max(l.sure, until)
		l.mu.Unlock()
	}
}

// notExtended notes that a host has refused an extension, so that the next Confirm does not count it, nor any before
// it, as granted.
func (d *Delivery) notExtended() {
	if l := d.lock.Load(); l != nil {
		l.mu.Lock()
		l.pending = l.pending[:0]
		l.mu.Unlock()
	}
}
