package publish

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Done is told the outcome of a record, once: where it is stored, or an error. Calls come one after another from one
// goroutine of the publisher, and must not wait for it.
//
// The errors: core.ClassFatal ones (too large, not found, disabled, …) at once; core.CodeUnknown if the record's time
// was up and a try may have stored it; else the last reason why it could not be sent, retryable.
type Done interface {
	Settled(id core.MessageID, at core.Receipt, err error)
}

// DoneFunc is a Done.
type DoneFunc func(id core.MessageID, at core.Receipt, err error)

// Settled calls f.
func (f DoneFunc) Settled(id core.MessageID, at core.Receipt, err error) { f(id, at, err) }

// Publisher appends records to one queue. Records go out in the order they were taken, and again if they were refused
// for now or, unless Config.Once says otherwise, their host was lost without an answer: then they may be stored twice.
// Safe for concurrent use.
type Publisher struct {
	cfg   Config
	epoch time.Time
	key   string  // by which it ranks hosts
	id    core.ID // by which hosts know its sessions

	wake     chan struct{} // something changed that the loop waits for
	outcomes chan struct{} // something for the completer
	stop     chan struct{} // closed by Close
	ended    chan struct{} // closed when Run has returned
	stopOnce sync.Once
	wg       sync.WaitGroup

	mu struct {
		sync.Mutex
		closed error // set: nothing is taken any more

		ids        idSource
		maxPayload int    // 0: not known yet
		queueID    string // of the queue that the last session published to

		number  uint64
		current *batch   // gathers; nil when empty
		queue   []*batch // to be sent before it, by number
		live    []*batch // whose owners do not know all outcomes, by number
		settled []outcome
		records int // taken, without an outcome that its owner is being told
		bytes   int
		idle    bool          // the loop waits for a record
		stuck   bool          // the loop waits for room on the active session
		room    chan struct{} // closed when there is room again; nil when nobody waits
		flushes []flush

		active      *session
		leaving     []*session // finish what they have in flight
		sessions    uint64     // begun so far
		ordered     bool       // a cp queue: one session at a time
		connecting  bool
		over        bool         // the loop has ended
		connects    []chan error // of those who wait in Connect
		avoid       core.HostID  // the host that was left last
		better      core.HostID  // a host to move to, while the active one goes on; ""
		hosts       []Host       // of the queue, as last heard; not changed in place
		failures    int          // in a row, of connecting or sending
		pausedUntil int64
		throttled   int64 // until when hosts have asked for a pause, which nothing shortens
		lastErr     error
		lack        lack
		nextExpiry  int64
		nextTick    int64
		clock       int64 // as last read for a record
		shares      int   // how many more records may use it; 0 after each turn of the loop
	}
}

// flush waits for all batches up to number.
type flush struct {
	number uint64
	done   chan struct{}
}

// New makes a publisher; it does nothing until Run.
func New(cfg Config) *Publisher {
	p := &Publisher{
		cfg: cfg.withDefaults(), epoch: time.Now(), key: core.NewID(time.Now()).String(),
		wake: make(chan struct{}, 1), outcomes: make(chan struct{}, 1),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	p.id = core.NewID(p.epoch)
	p.mu.ids = newIDSource()
	p.mu.nextExpiry = never
	return p
}

const never = int64(1) << 62

func (p *Publisher) now() int64 { return int64(time.Since(p.epoch)) }

// Append takes a record, whose id it makes (and sets) if it is zero, copies it, and tries it for timeout (0: the
// default). While the publisher is full it waits until ctx ends; with a context that is over it takes nothing. An error
// means that the record was not taken; done (may be nil) is not called then.
func (p *Publisher) Append(ctx context.Context, r *wire.Record, timeout time.Duration, done Done) error {
	if err := p.lockWithRoom(ctx); err != nil {
		return err
	}
	if most := p.mu.maxPayload; most > 0 && len(r.Payload) > most {
		p.mu.Unlock()
		return core.Errorf(core.CodeTooLarge, "message has %d bytes; queue %s takes at most %d, see --max-message", len(r.Payload), p.cfg.Queue, most)
	}
	b := p.gatheringLocked()
	now := p.clockLocked(timeout)
	if r.ID.IsZero() {
		r.ID = p.mu.ids.next(b.epoch + now/int64(time.Millisecond))
	}
	buf, err := p.encode(b.buf, r)
	if err != nil {
		p.dropEmptyLocked(b)
		p.mu.Unlock()
		return err
	}
	urgent := p.addLocked(b, buf, r.ID, now, p.deadline(ctx, now, timeout), done)
	p.unlockAndWake(urgent)
	return nil
}

// encode appends a record. Two calls by name let the records of callers stay on their stacks; a call of a function
// value moves each to the heap.
func (p *Publisher) encode(buf []byte, r *wire.Record) ([]byte, error) {
	if p.cfg.Internal {
		return wire.AppendRecord(buf, r)
	}
	return wire.AppendPublished(buf, r)
}

// AppendEncoded is Append for a record that is encoded already, under the id it holds.
func (p *Publisher) AppendEncoded(ctx context.Context, record []byte, id core.MessageID, timeout time.Duration, done Done) error {
	if err := p.lockWithRoom(ctx); err != nil {
		return err
	}
	b, now := p.gatheringLocked(), p.clockLocked(timeout)
	urgent := p.addLocked(b, append(b.buf, record...), id, now, p.deadline(ctx, now, timeout), done)
	p.unlockAndWake(urgent)
	return nil
}

// lockWithRoom returns with the mutex held, unless it fails.
func (p *Publisher) lockWithRoom(ctx context.Context) error {
	if ctx.Err() != nil {
		return core.Errorf(core.CodeUnavailable, "nothing was published to %s: %w", p.cfg.Queue, context.Cause(ctx))
	}
	for {
		p.mu.Lock()
		if err := p.mu.closed; err != nil {
			p.mu.Unlock()
			return err
		}
		if p.mu.records < p.cfg.MaxRecords && p.mu.bytes < p.cfg.MaxBytes {
			return nil
		}
		if p.mu.room == nil {
			p.mu.room = make(chan struct{})
		}
		room := p.mu.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return core.Errorf(core.CodeUnavailable, "publisher of %s is full: %w", p.cfg.Queue, context.Cause(ctx))
		}
	}
}

func (p *Publisher) gatheringLocked() *batch {
	if p.mu.current == nil {
		p.mu.number++
		p.mu.current = newBatch(p.mu.number)
		// A batch reads the calendar once: the monotonic clock alone takes half the time for each record.
		p.mu.current.epoch = time.Now().UnixMilli() - p.now()/int64(time.Millisecond)
		p.mu.live = append(p.mu.live, p.mu.current)
	}
	return p.mu.current
}

// clockLocked is the time of a record that is taken now, with a timeout of its own or 0.
//
// Reading the clock costs a twentieth of what a small message costs altogether, so neighbours share a reading. The loop
// takes a turn at least once a tick while records wait, and ends the sharing: a reading is at most that old. Nobody
// notices that in a timeout of 100 ticks; a shorter one is exact.
func (p *Publisher) clockLocked(timeout time.Duration) int64 {
	if p.mu.shares == 0 || timeout > 0 || p.cfg.Timeout < 100*tick {
		p.mu.clock, p.mu.shares = p.now(), clockShares
	}
	p.mu.shares--
	return p.mu.clock
}

// dropEmptyLocked undoes gatheringLocked for a batch that stayed empty.
func (p *Publisher) dropEmptyLocked(b *batch) {
	if len(b.slots) > 0 {
		return
	}
	p.mu.current = nil
	p.mu.live = p.mu.live[:len(p.mu.live)-1]
	b.release()
	b.release()
}

// deadline is until when a record is tried that is taken now.
func (p *Publisher) deadline(ctx context.Context, now int64, timeout time.Duration) int64 {
	if timeout <= 0 {
		timeout = p.cfg.Timeout
	}
	until := now + int64(min(timeout, core.LongestWait))
	if !p.cfg.Once {
		return until
	}
	if at, ok := ctx.Deadline(); ok {
		until = min(until, int64(at.Sub(p.epoch)))
	}
	return until
}

// addLocked gives the record that buf holds beyond b.buf its slot, in a new batch if b is full. An urgent record would
// fail if it waited for the pace.
func (p *Publisher) addLocked(b *batch, buf []byte, id core.MessageID, now, deadline int64, done Done) (urgent bool) {
	size := len(buf) - len(b.buf)
	if len(buf) > p.targetLocked() && len(b.slots) > 0 || len(b.slots) == wire.MaxBatchRecords {
		record := buf[len(b.buf):]
		p.mu.queue = append(p.mu.queue, b)
		p.mu.current = nil
		b.buf = buf[:len(b.buf)] // the larger buffer is worth keeping
		b = p.gatheringLocked()
		buf = append(b.buf, record...)
	}
	b.buf = buf
	b.slots = append(b.slots, slot{done: done, id: id, deadline: deadline, end: uint32(len(buf))})
	b.left++
	b.uncalled++
	p.mu.records++
	p.mu.bytes += size
	p.mu.nextExpiry = min(p.mu.nextExpiry, deadline)
	s := p.mu.active
	return s != nil && now < s.pace.next && s.pace.tooLate(deadline)
}

// targetLocked is the size of a batch above which it is full.
func (p *Publisher) targetLocked() int {
	if p.mu.active == nil {
		return batchTarget
	}
	return p.mu.active.pace.target()
}

// unlockAndWake wakes the loop if it waits for a record, or for the pace and the one that was taken is urgent.
func (p *Publisher) unlockAndWake(urgent bool) {
	wake := p.mu.idle || urgent
	p.mu.idle = false
	p.mu.Unlock()
	if wake {
		signal(p.wake)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Connect waits for a session with an input host. It fails at once if that is refused for good, else when ctx ends.
func (p *Publisher) Connect(ctx context.Context) error {
	p.mu.Lock()
	if p.mu.active != nil || p.mu.closed != nil {
		defer p.mu.Unlock()
		return p.mu.closed
	}
	c := make(chan error, 1)
	p.mu.connects = append(p.mu.connects, c)
	p.mu.Unlock()
	signal(p.wake)
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		p.forgetConnect(c)
		err := p.orLastErr(context.Cause(ctx))
		code := core.CodeUnavailable
		if errors.Is(err, core.ErrNoMajority) { // also of a look-up: it says what to do
			code = core.CodeNoMajority
		}
		return core.Errorf(code, "connect to an input host of %s: %w", p.cfg.Queue, err)
	case <-p.ended:
		return errClosed(p.cfg.Queue)
	}
}

func (p *Publisher) forgetConnect(c chan error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.connects = slices.DeleteFunc(p.mu.connects, func(o chan error) bool { return o == c })
}

// orLastErr prefers the reason why connecting failed.
func (p *Publisher) orLastErr(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.lastErr != nil {
		return p.mu.lastErr
	}
	return err
}

// Flush waits until the owners of all records taken before it know their outcomes.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	if len(p.mu.live) == 0 {
		p.mu.Unlock()
		return nil
	}
	f := flush{number: p.mu.number, done: make(chan struct{})}
	if p.mu.current != nil { // records that come later shall not hold it up
		p.mu.queue = append(p.mu.queue, p.mu.current)
		p.mu.current = nil
	}
	p.mu.flushes = append(p.mu.flushes, f)
	p.mu.Unlock()
	signal(p.wake)
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return core.Errorf(core.CodeUnknown, "flush publisher of %s: %w", p.cfg.Queue, context.Cause(ctx))
	}
}

// Close refuses new records, flushes, and ends Run. Records without an outcome when ctx ends fail.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.mu.closed == nil {
		p.mu.closed = errClosed(p.cfg.Queue)
	}
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.stopOnce.Do(func() { close(p.stop) })
	signal(p.wake)
	<-p.ended
	return err
}

func errClosed(queue string) error {
	return core.Errorf(core.CodeUnavailable, "publisher of %s is closed", queue)
}
