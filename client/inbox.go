package client

import (
	"context"
	"sync"
	"time"
)

// inbox holds what was delivered and not yet yielded. The credits given to the hosts bound it.
type inbox struct {
	wake  chan struct{}
	ended chan struct{} // closed by end
	mu    struct {
		sync.Mutex
		slabs   []*slab
		waiting int // in next
		over    bool
		err     error
		paused  error         // why nothing is delivered for now; nil: it is
		pauses  int           // so far
		told    bool          // somebody was told of this one
		news    chan struct{} // closed with the next pause
		budget  *budget       // of a consumer with a limit; else nil
	}
}

// slab is the deliveries of one frame.
type slab struct {
	stream     *consumeStream
	deliveries []Delivery
	next       int // to be yielded
	uncounted  taken
	received   time.Time
}

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

// pause has everyone who waits for deliveries told why none come; once for each pause.
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

// heard is how many pauses one who begins to take deliveries knows of: all, but one that nobody was told of.
func (b *inbox) heard() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.paused != nil && !b.mu.told {
		return b.mu.pauses - 1
	}
	return b.mu.pauses
}

// push adds a slab; once the inbox has ended it gives it back.
func (b *inbox) push(s *slab) {
	b.mu.Lock()
	over := b.mu.over
	if !over {
		b.mu.slabs = append(b.mu.slabs, s)
		b.arrivedLocked(s)
	}
	wake := b.mu.waiting > 0
	b.mu.Unlock()
	switch {
	case over:
		s.giveBack()
	case wake:
		signal(b.wake)
	}
}

// next waits for a delivery. nil without an error: ctx or the consumer has ended. An error with more to come is that of a pause which is not
// among those heard of.
func (b *inbox) next(ctx context.Context, heard *int) (d *Delivery, more bool, err error) {
	for waited := 0; ; waited = 1 {
		b.mu.Lock()
		b.mu.waiting -= waited
		if b.mu.over || ctx.Err() != nil {
			defer b.mu.Unlock()
			return nil, false, b.mu.err
		}
		if *heard != b.mu.pauses {
			*heard = b.mu.pauses
			if err := b.mu.paused; err != nil {
				b.mu.told = true
				b.mu.Unlock()
				return nil, true, err
			}
		}
		news := b.mu.news
		d, out := b.popLocked()
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
				d.stream.out.taken(out.messages, out.bytes)
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

// popLocked takes the first delivery of a stream that lives. What has left is to be counted by the stream in steps: out is not zero
// when one is due, at the latest with the last of a slab.
func (b *inbox) popLocked() (d *Delivery, out taken) {
	for len(b.mu.slabs) > 0 {
		s := b.mu.slabs[0]
		if s.next < len(s.deliveries) && !s.stream.lost.Load() {
			d := &s.deliveries[s.next]
			s.next++
			u := &s.uncounted
			u.messages, u.bytes = u.messages+1, u.bytes+d.size
			if s.next == len(s.deliveries) || s.stream.out.isStep(*u) {
				out, *u = *u, taken{}
			}
			return d, out
		}
		b.mu.slabs[0] = nil
		b.mu.slabs = b.mu.slabs[1:]
	}
	return nil, taken{}
}

// giveBack returns the slabs that which chooses to their hosts.
func (b *inbox) giveBack(which func(*slab) bool) {
	var back, keep []*slab
	b.mu.Lock()
	for _, s := range b.mu.slabs {
		if which(s) {
			back = append(back, s)
			b.returnedLocked(s)
		} else {
			keep = append(keep, s)
		}
	}
	b.mu.slabs = keep
	asks := b.planLocked()
	b.mu.Unlock()
	for _, s := range back {
		s.giveBack()
	}
	perform(asks)
}

// giveBack returns what was not yielded of a slab that nobody else sees.
func (s *slab) giveBack() {
	size := 0
	for i := s.next; i < len(s.deliveries); i++ {
		d := &s.deliveries[i]
		d.settled.Store(true)
		s.stream.out.giveBack(d.handle, d.Receipt.Seq, uint16(d.Attempt))
		size += d.size
	}
	s.stream.out.taken(s.uncounted.messages+len(s.deliveries)-s.next, s.uncounted.bytes+size)
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
