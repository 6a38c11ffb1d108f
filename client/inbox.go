package client

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/wire"
)

// inbox holds the deliveries that were not yielded yet. The credit granted to the hosts bounds it.
type inbox struct {
	wake  chan struct{}
	ended chan struct{} // closed by end
	mu    struct {
		sync.Mutex
		slabs   []*slab
		apart   []*slab // of streams that were lost, until it is known whether their host goes on
		once    bool    // the group delivers at most once: what is not yielded is lost
		waiting int     // in next
		over    bool
		err     error
		paused  error         // why nothing is delivered for now; nil: it is
		pauses  int           // so far
		told    bool          // somebody was told of this one
		news    chan struct{} // closed with the next pause
		budget  *budget       // of a consumer with a limit; else nil
	}
}

// slab is the deliveries of one frame. The inbox's mutex guards carrier, next and uncounted; the rest does not change.
type slab struct {
	stream     *consumeStream
	carrier    *consumeStream // that the slab counts for: its stream, or the one that its host was connected to again by
	deliveries []Delivery
	next       int // to be yielded
	uncounted  taken
	received   time.Time
	timeout    time.Duration // of the locks, as the host had told it by then
}

// parting says what happens to the slabs of a stream that has ended.
//
//	live ── lost ──▶ apart ── connected to the same run of the host ──▶ kept: yielded, the locks stand
//	     │             └───── another run, no route, or too old ──────▶ given back
//	     └── lost, at most once ──▶ kept
type parting uint8

const (
	live  parting = iota
	apart         // wait for a word of their host
	kept
	over
)

// taken is deliveries that have left the inbox.
type taken struct{ messages, bytes int }

func newInbox(limit int) *inbox {
	b := &inbox{wake: make(chan struct{}, 1), ended: make(chan struct{})}
	b.mu.news = make(chan struct{})
	if limit > 0 {
		b.mu.budget = newBudget(limit)
	}
	return b
}

// pause makes next return the error of the pause, once for each pause and caller.
func (b *inbox) pause(err error) (begins bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if begins = b.mu.paused == nil; begins {
		b.mu.paused, b.mu.told = err, false
		b.mu.pauses++
		close(b.mu.news)
		b.mu.news = make(chan struct{})
	}
	return begins
}

// resume ends a pause.
func (b *inbox) resume() (ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ended = b.mu.paused != nil
	b.mu.paused = nil
	return ended
}

// heard is the number of pauses that a new caller of next counts as known: all, except a pause that no caller was told
// of.
func (b *inbox) heard() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.paused != nil && !b.mu.told {
		return b.mu.pauses - 1
	}
	return b.mu.pauses
}

// push adds a slab. If the inbox has ended, push gives the slab back. A consumer with a limit also gives back what
// arrives on a stream that has ended: the credit of the stream is free.
func (b *inbox) push(s *slab) {
	b.mu.Lock()
	freed := b.mu.budget != nil && s.stream.parted != live && !b.mu.once
	refused := b.mu.over || s.stream.parted == over || freed
	switch {
	case refused:
	case s.stream.parted == apart:
		b.mu.apart = append(b.mu.apart, s)
		b.arrivedLocked(s)
	default:
		b.mu.slabs = append(b.mu.slabs, s)
		b.arrivedLocked(s)
	}
	wake := b.mu.waiting > 0
	b.mu.Unlock()
	switch {
	case refused:
		s.carrier.out.stopCredit() // else it would come again at once
		s.giveBack()
	case wake:
		signal(b.wake)
	}
}

// next waits for a delivery. nil without an error: ctx or the consumer has ended. An error of a pause that the caller
// does not know is not the last: more deliveries may follow.
func (b *inbox) next(ctx context.Context, heard *int) (d *Delivery, more bool, err error) {
	for waited := 0; ; waited = 1 {
		b.mu.Lock()
		b.mu.waiting -= waited
		if b.mu.over || ctx.Err() != nil {
			defer b.mu.Unlock()
			return nil, false, b.mu.err
		}
		if *heard != b.mu.pauses && !(b.mu.once && len(b.mu.slabs) > 0) {
			*heard = b.mu.pauses
			if err := b.mu.paused; err != nil {
				b.mu.told = true
				b.mu.Unlock()
				return nil, true, err
			}
		}
		news := b.mu.news
		d, carrier, out := b.popLocked()
		asks := b.yieldedLocked(d)
		if d == nil {
			b.mu.waiting++
		}
		again := len(b.mu.slabs) > 0 && b.mu.waiting > 0
		b.mu.Unlock()
		if d != nil {
			if again {
				signal(b.wake)
			}
			perform(asks)
			if out.messages > 0 {
				carrier.out.taken(out.messages, out.bytes)
			}
			return d, true, nil
		}
		select {
		case <-b.wake:
		case <-news:
		case <-b.ended:
		case <-ctx.Done():
			signal(b.wake) // it may have been meant for another
		}
	}
}

// popLocked takes the first delivery. The carrier counts the deliveries that have left, in steps: out is not zero when
// a step is due, at the latest with the last delivery of a slab. A slab leaves with its last delivery, so a slab in the
// inbox is never empty.
func (b *inbox) popLocked() (d *Delivery, carrier *consumeStream, out taken) {
	if len(b.mu.slabs) == 0 {
		return nil, nil, taken{}
	}
	s := b.mu.slabs[0]
	d = &s.deliveries[s.next]
	s.next++
	u := &s.uncounted
	u.messages, u.bytes = u.messages+1, u.bytes+d.size
	last := s.next == len(s.deliveries)
	if last {
		b.mu.slabs[0] = nil
		b.mu.slabs = b.mu.slabs[1:]
	}
	if last || s.carrier.out.isStep(*u) {
		out, *u = *u, taken{}
	}
	return d, s.carrier, out
}

// giveBack gives the slabs for which which is true back to their hosts.
func (b *inbox) giveBack(which func(*slab) bool) {
	b.mu.Lock()
	b.giveBackLocked(&b.mu.slabs, which)
}

// forget is giveBack for slabs of ended streams, which deliver nothing any more.
func (b *inbox) forget(which func(*slab) bool) {
	b.mu.Lock()
	if len(b.mu.apart) == 0 {
		b.mu.Unlock()
		return
	}
	b.giveBackLocked(&b.mu.apart, which)
}

// giveBackLocked unlocks the mutex.
func (b *inbox) giveBackLocked(from *[]*slab, which func(*slab) bool) {
	var back, keep []*slab
	for _, s := range *from {
		if which(s) {
			back = append(back, s)
			b.returnedLocked(s)
		} else {
			keep = append(keep, s)
		}
	}
	*from = keep
	asks := b.planLocked()
	b.mu.Unlock()
	for _, s := range back {
		s.giveBack()
	}
	perform(asks)
}

// part removes a stream that has ended from the inbox. The host of a lost stream may be connected to again: its slabs
// that were not yielded are kept apart until then.
func (b *inbox) part(s *consumeStream, lost bool) {
	b.mu.Lock()
	var back []*slab
	switch {
	case b.mu.once:
		s.parted = kept
	case lost && !s.run.IsZero() && !b.mu.over:
		s.parted = apart
		b.moveLocked(&b.mu.slabs, &b.mu.apart, s)
	default:
		s.parted = over
		b.moveLocked(&b.mu.slabs, &back, s)
	}
	for _, x := range back {
		b.returnedLocked(x)
	}
	b.leaveLocked(s)
	asks := b.planLocked()
	b.mu.Unlock()
	for _, x := range back {
		x.giveBack()
	}
	perform(asks)
}

// moveLocked moves the slabs that a stream carries.
func (b *inbox) moveLocked(from, to *[]*slab, s *consumeStream) {
	rest := (*from)[:0]
	for _, x := range *from {
		if x.carrier == s {
			x.stream.parted = s.parted
			*to = append(*to, x)
		} else {
			rest = append(rest, x)
		}
	}
	clear((*from)[len(rest):])
	*from = rest
}

// resumed is called when the stream s connects to a known host again. If the host is in the same run, the messages that
// it had delivered are still locked, and are yielded now. If it is in another run, it may have forgotten the locks or
// left them to other hosts, so the messages are given back. The yielded messages count against the part of the prefetch
// that s gets afterwards, which is most of it.
func (b *inbox) resumed(s *consumeStream, most int) {
	b.mu.Lock()
	if s.parted != live { // lost meanwhile
		b.mu.Unlock()
		return
	}
	var here []*slab
	rest := b.mu.apart[:0]
	for _, x := range b.mu.apart {
		if x.carrier.host.id == s.host.id && x.stream.run == s.run && !b.mu.over {
			x.stream.parted = kept
			here = append(here, x)
		} else {
			rest = append(rest, x)
		}
	}
	clear(b.mu.apart[len(rest):])
	b.mu.apart = rest
	b.mu.slabs = append(here, b.mu.slabs...)
	b.joinLocked(s, most)
	var carried taken
	for _, x := range b.mu.slabs {
		if x.carrier != s && x.carrier.host.id == s.host.id {
			b.carryLocked(x, s, &carried)
		}
	}
	wake := len(here) > 0 && b.mu.waiting > 0
	asks := b.planLocked()
	b.mu.Unlock()
	s.out.taken(-carried.messages, -carried.bytes)
	perform(asks)
	if wake {
		signal(b.wake)
	}
	b.forget(func(x *slab) bool { return x.carrier.host.id == s.host.id })
}

// carryLocked makes a stream the carrier of a slab of an ended stream, and counts the deliveries left in it.
func (b *inbox) carryLocked(x *slab, s *consumeStream, carried *taken) {
	b.returnedLocked(x)
	x.carrier, x.uncounted = s, taken{}
	b.heldLocked(x)
	carried.messages += len(x.deliveries) - x.next
	for i := x.next; i < len(x.deliveries); i++ {
		carried.bytes += x.deliveries[i].size
	}
}

// setOnce records that the group delivers at most once.
func (b *inbox) setOnce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.once = true
}

func (b *inbox) once() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.once
}

// giveBack gives the deliveries of a slab back that were not yielded. No other goroutine has the slab.
func (s *slab) giveBack() {
	size := 0
	var elsewhere []settlement
	for i := s.next; i < len(s.deliveries); i++ {
		d := &s.deliveries[i]
		d.settled.Store(true)
		if !s.stream.out.giveBack(d.handle, d.Receipt.Seq, uint16(d.Attempt)) {
			run := wire.SeqRun{Base: d.Receipt.Seq, Count: 1, Attempt: uint16(d.Attempt)}
			elsewhere = append(elsewhere, settlement{verb: wire.TypeReturn, extent: s.stream.extent(d.handle), run: run})
		}
		size += d.size
	}
	_, lock := s.locked()
	s.stream.con.resettle(elsewhere, lock-time.Since(s.received), false)
	s.carrier.out.taken(s.uncounted.messages+len(s.deliveries)-s.next, s.uncounted.bytes+size)
}

// end makes next return err for ever.
func (b *inbox) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(err)
}

func (b *inbox) endLocked(err error) {
	if !b.mu.over {
		b.mu.over, b.mu.err = true, err
		close(b.ended)
	}
}

func (b *inbox) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.err
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
