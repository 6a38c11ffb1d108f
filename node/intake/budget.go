package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// Limits of a Budget. Sizes are in bytes.
type Limits struct {
	Small int64 // of what bodies of at most SmallBody hold together
	Large int64 // of what all larger ones hold together
	// Body is the largest body, unpacked.
	Body int64
	// Waiting is how many small and how many large requests may wait for room. Of more than that the largest are refused
	// at once.
	Waiting int
	// Wait is how long one waits for room.
	Wait time.Duration

	answers bool // the bodies are those of answers
}

// SmallBody is the largest body that counts as small. Small ones have room of their own: large ones never take it.
const SmallBody = 64 << 10

// One address may hold three quarters of the room, so that there is some for others; one connection half of it.
const (
	addressShare    = 3.0 / 4
	connectionShare = 1.0 / 2
)

// look is how often who waits for room looks whether a body has become too slow.
const look = 100 * time.Millisecond

// Budget owns how many bytes of requests a process holds: while they arrive, and until they are answered. Another one
// owns those of answers, from their reservation until they are sent; these arrive at the client. Safe for concurrent
// use.
//
// When there is no room, a request waits until others are answered or cut: a body that comes more slowly than it should
// makes room. Of those that wait the smallest goes first.
type Budget struct {
	limits Limits
	now    func() time.Time
	mu     struct {
		sync.Mutex
		rooms    [2]room            // by class
		waiting  []*waiter          // the one that wants least is the first
		arriving map[*Body]struct{} // those that hold something and are not complete
		looked   time.Time          // when slow ones were cut, last
	}
}

type class int

const (
	small class = iota
	large
)

// room is what bodies of a class hold.
type room struct {
	most, used int64
	byAddress  map[string]int64
	byConn     map[any]int64
}

// Body is what one request holds of a Budget.
type Body struct {
	b       *Budget
	address string
	conn    any    // identifies the connection
	cut     func() // breaks the arrival off; may be called several times, on any goroutine. A read that begins later must look at deadline

	// Guarded by b.mu.
	held    [2]int64
	began   time.Time // of the arrival; a wait for room does not count
	last    time.Time // when bytes arrived
	arrived int64
	waits   bool // for room: then it is not its fault that nothing arrives
	silent  bool // of an answer: nothing is being sent, so it cannot be late
	done    bool // is complete, or was released
	wasCut  bool
}

type waiter struct {
	body  *Body
	class class
	n     int64
	ready chan struct{} // closed when it has its room
	done  bool
	err   error // set when it is done without room
}

// NewBudget makes an empty one.
func NewBudget(l Limits, now func() time.Time) *Budget {
	b := &Budget{limits: l, now: now}
	for i, most := range []int64{l.Small, l.Large} {
		b.mu.rooms[i] = room{most: most, byAddress: map[string]int64{}, byConn: map[any]int64{}}
	}
	b.mu.arriving = map[*Body]struct{}{}
	return b
}

// Body begins a request of a connection of an address. It holds nothing yet; Release must follow.
func (b *Budget) Body(address string, conn any, cut func()) *Body {
	return &Body{b: b, address: address, conn: conn, cut: cut, began: b.now(), last: b.now()}
}

// most is how much one request can hold of a class at all.
func (b *Budget) most(c class) int64 { return int64(float64(b.mu.rooms[c].most) * connectionShare) }

// Held is how much all requests hold.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.rooms[small].used + b.mu.rooms[large].used
}

// Waiting is how many requests wait for room.
func (b *Budget) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.waiting)
}

// grow takes n more bytes of a class for the body, and waits for room. CodeTooLarge when it can never have so much,
// CodeThrottled when there was no room in time or too many wait.
func (d *Body) grow(ctx context.Context, c class, n int64) error {
	b := d.b
	b.mu.Lock()
	if d.held[c]+n > b.most(c) {
		b.mu.Unlock()
		return core.Errorf(core.CodeTooLarge, "the request needs %d bytes of memory, at most %d are taken; send it in several", d.held[c]+n, b.most(c))
	}
	if b.fits(d, c, n) && !b.overtakes(c, n) {
		b.take(d, c, n)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{body: d, class: c, n: n, ready: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(b.mu.waiting, n+1, func(o *waiter, n int64) int { return int(min(max(o.n-n, -1), 1)) })
	b.mu.waiting = slices.Insert(b.mu.waiting, at, w)
	b.dropLargest(c)
	d.waits = true
	since := b.now()
	b.mu.Unlock()
	defer b.leave(w, since)

	give := time.NewTimer(b.limits.Wait)
	defer give.Stop()
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		b.makeRoom()
		select {
		case <-w.ready:
			return w.err
		case <-again.C:
		case <-give.C:
			return b.busy()
		case <-ctx.Done():
			return core.Errorf(core.CodeUnavailable, "the client has gone: %w", context.Cause(ctx))
		}
	}
}

// dropLargest refuses a waiter when too many of its class wait. With mu.
func (b *Budget) dropLargest(c class) {
	n, last := 0, (*waiter)(nil)
	for _, w := range b.mu.waiting {
		if w.class == c && !w.done {
			n, last = n+1, w
		}
	}
	if n > b.limits.Waiting {
		last.done, last.err = true, b.busy()
		close(last.ready)
	}
}

// busy is the error of a body without room.
func (b *Budget) busy() error {
	what := "the server holds as many bytes of requests as it may; try again"
	if b.limits.answers {
		what = "the server holds as many bytes of answers as it may, until their clients have read them; try again"
	}
	return &core.Error{Code: core.CodeThrottled, Text: what, RetryAfter: time.Second}
}

// leave ends a wait that began at a time. A waiter that got its room meanwhile keeps it: its body releases it.
func (b *Budget) leave(w *waiter, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.body.waits = false
	w.body.began = w.body.began.Add(b.now().Sub(since))
	w.body.last = b.now()
	b.mu.waiting = slices.DeleteFunc(b.mu.waiting, func(o *waiter) bool { return o == w })
}

// fits reports whether the room has n more bytes for a body, by the shares of its address and connection, too. With mu.
func (b *Budget) fits(d *Body, c class, n int64) bool {
	r := &b.mu.rooms[c]
	return r.used+n <= r.most && r.byAddress[d.address]+n <= int64(float64(r.most)*addressShare) && r.byConn[d.conn]+n <= b.most(c)
}

// overtakes reports whether who is as small or smaller waits for the same room. With mu.
func (b *Budget) overtakes(c class, n int64) bool {
	return slices.ContainsFunc(b.mu.waiting, func(w *waiter) bool { return w.class == c && !w.done && w.n <= n && b.fits(w.body, c, w.n) })
}

func (b *Budget) take(d *Body, c class, n int64) {
	r := &b.mu.rooms[c]
	r.used += n
	r.byAddress[d.address] += n
	r.byConn[d.conn] += n
	d.held[c] += n
	if !d.done {
		b.mu.arriving[d] = struct{}{}
	}
}

// serve gives room to those that wait, the smallest first. With mu.
func (b *Budget) serve() {
	for _, w := range b.mu.waiting {
		if !w.done && b.fits(w.body, w.class, w.n) {
			b.take(w.body, w.class, w.n)
			w.done = true
			close(w.ready)
		}
	}
}

// makeRoom serves those that wait, and cuts the bodies in their way that have come too slowly: where the whole room is
// full all such, else those of the same address.
func (b *Budget) makeRoom() {
	b.mu.Lock()
	b.serve()
	now := b.now()
	if now.Sub(b.mu.looked) < look/2 {
		b.mu.Unlock()
		return
	}
	b.mu.looked = now
	var full [2]bool
	var crowded [2]map[string]bool // addresses
	for _, w := range b.mu.waiting {
		r := &b.mu.rooms[w.class]
		switch {
		case w.done:
		case r.used+w.n > r.most:
			full[w.class] = true
		default:
			if crowded[w.class] == nil {
				crowded[w.class] = map[string]bool{}
			}
			crowded[w.class][w.body.address] = true
		}
	}
	var cuts []func()
	for d := range b.mu.arriving {
		if d.waits || d.silent || d.wasCut || !d.late(now) {
			continue
		}
		for c := range d.held {
			if d.held[c] > 0 && !d.wasCut && (full[c] || crowded[c][d.address]) {
				d.wasCut = true
				cuts = append(cuts, d.cut)
			}
		}
	}
	b.mu.Unlock()
	for _, cut := range cuts {
		cut()
	}
}

// A body may take so long: by itself, and while others wait for its room. Sums of a pause and the time at a rate in
// bytes per second.
const (
	calmPause, calmRate       = 10 * time.Second, 64 << 10
	pressedPause, pressedRate = 500 * time.Millisecond, 1 << 20
)

// calmTime is how long a body of which so many bytes have arrived may have taken.
func calmTime(arrived int64) time.Duration { return calmPause + seconds(arrived, calmRate) }

// pressedTime is the same while others wait for room.
func pressedTime(arrived int64) time.Duration { return pressedPause + seconds(arrived, pressedRate) }

func seconds(n, rate int64) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(rate)
}

// begin starts the clock of the arrival, when the first room was given; deadline is until when the next bytes have to
// be there.
func (d *Body) begin() {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.began = d.b.now()
	d.last = d.began
}

// progress counts arrived bytes.
func (d *Body) progress(n int) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.arrived += int64(n)
	if n > 0 {
		d.last = d.b.now()
	}
}

// deadline is until when the next bytes have to be there: neither a pause nor the whole may take too long.
func (d *Body) deadline() time.Time {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	rate, pause := d.began.Add(calmTime(d.arrived)), d.last.Add(calmPause)
	switch {
	case d.wasCut:
		return time.Unix(1, 0) // the cut itself may have come before the deadline of this read
	case pause.Before(rate):
		return pause
	}
	return rate
}

// late reports whether the body has come more slowly than it may while others wait. With b.mu.
func (d *Body) late(now time.Time) bool {
	return now.Sub(d.began) > pressedTime(d.arrived) || now.Sub(d.last) > pressedPause
}

// pace reports whether the body waits for room itself, and whether it has come more slowly than it may while others
// wait.
func (d *Body) pace() (waits, late bool) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	return d.waits, d.late(d.b.now())
}

// Cut breaks the arrival off, unless it is complete.
func (d *Body) Cut() {
	d.b.mu.Lock()
	ended := d.done
	d.wasCut = d.wasCut || !ended
	d.b.mu.Unlock()
	if !ended {
		d.cut()
	}
}

// isCut reports whether the arrival was broken off.
func (d *Body) isCut() bool {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	return d.wasCut
}

// complete ends the arrival: the body is no longer cut. It reports whether it was cut before.
func (d *Body) complete() (cut bool) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.done = true
	delete(d.b.mu.arriving, d)
	return d.wasCut
}

// Release gives back all that the body holds. Idempotent.
func (d *Body) Release() {
	b := d.b
	b.mu.Lock()
	defer b.mu.Unlock()
	d.done = true
	delete(b.mu.arriving, d)
	for c := range b.mu.rooms {
		b.giveBack(d, class(c), d.held[c])
	}
	b.serve()
}

// giveBack takes n bytes of a class from a body. With mu.
func (b *Budget) giveBack(d *Body, c class, n int64) {
	r := &b.mu.rooms[c]
	d.held[c] -= n
	r.used -= n
	if r.byAddress[d.address] -= n; r.byAddress[d.address] == 0 {
		delete(r.byAddress, d.address)
	}
	if r.byConn[d.conn] -= n; r.byConn[d.conn] == 0 {
		delete(r.byConn, d.conn)
	}
}
