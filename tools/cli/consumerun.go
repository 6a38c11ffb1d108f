package cli

import (
	"context"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// consumeRun prints messages and settles those whose lines were taken.
type consumeRun struct {
	app          *app
	queue, group string
	flags        consumeFlags
	bar          *progress
	started      time.Time

	con     *client.Consumer
	screen  bool   // stdout is a terminal
	pipe    *pipe  // stdout, if it is one
	buf     []byte // the lines of a batch
	ends    []int  // where in buf each line ends
	batch   int    // lines that are written at once
	total   int64  // messages whose lines were taken
	refused atomic.Int64
	lock    time.Duration // the group's lock timeout when the run ended; 0: not known, or the group is at-most-once
	ended   string        // why the run ended, when it was neither count nor interrupt
	last    time.Time     // when the last line was taken
	noHost  bool          // it ended by --idle without a connection to an output host

	unconfirmed error // why not all settlements were confirmed
}

const (
	// maxBatch lines at most are written at once.
	maxBatch = 512
	// A batch that was taken within fastBatch is followed by one twice as large, one that took longer than slowBatch by
	// one half as large.
	fastBatch, slowBatch = 20 * time.Millisecond, 100 * time.Millisecond
	// readerTime is how long a command that ends waits for its reader to take what was written.
	readerTime = time.Second
	// readerTick is how often a command that has nothing to write looks whether there still is a reader.
	readerTick = 100 * time.Millisecond
)

// all prints messages until something ends the run. Messages that were not printed by then are given back.
func (r *consumeRun) all(ctx context.Context, con *client.Consumer) error {
	r.con, r.pipe, r.batch = con, pipeOf(r.app.stdout), 1
	receiving, stop := context.WithCancel(ctx)
	messages := newHandoff()
	var receiver sync.WaitGroup
	receiver.Go(func() { messages.close(r.receive(receiving, con, messages)) })
	err := r.print(ctx, stop, messages)
	stop()
	receiver.Wait()
	rest, _ := messages.take()
	release(rest)
	r.bar.finish()
	r.lock = con.LockTimeout()
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	r.unconfirmed = con.Close(finish)
	if err == nil {
		err = messages.failure()
	}
	return r.summary(ctx, err)
}

// release gives back messages whose lines nobody has taken.
func release(unseen []*client.Delivery) {
	for _, d := range unseen {
		d.Release() // a lost connection has given it back already
	}
}

// receive hands on messages, at most --count, until ctx ends.
func (r *consumeRun) receive(ctx context.Context, con *client.Consumer, to *handoff) error {
	var n int64
	_, _, maxBytes := r.flags.bounds()
	if !to.waitRoom(ctx, maxBytes) {
		return nil
	}
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		to.add(d)
		if n++; n == r.flags.count || !to.waitRoom(ctx, maxBytes) {
			return nil
		}
	}
	return nil
}

// print writes and settles messages; it calls stop when no more are wanted and returns when no more come, or nobody
// takes them.
func (r *consumeRun) print(ctx context.Context, stop func(), messages *handoff) error {
	timeout, idle := newLimit(r.flags.timeout), newLimit(r.flags.idle)
	timeout.startAt(r.started)
	defer timeout.stop()
	defer idle.stop()
	most, _, _ := r.flags.bounds()
	var look <-chan time.Time
	if r.pipe != nil {
		tick := time.NewTicker(readerTick)
		defer tick.Stop()
		look = tick.C
	}
	for ctx.Err() == nil {
		batch, open := messages.take()
		if len(batch) == 0 {
			if !open {
				return nil
			}
			select {
			case <-messages.arrived:
			case <-timeout.c:
				r.end("timeout", stop)
			case <-idle.c:
				r.noHost = !r.con.Connected()
				r.end("idle", stop)
			case <-look:
				if r.pipe.broken() {
					return outputError(syscall.EPIPE)
				}
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		if err := r.write(ctx, batch, func() bool { return r.over(timeout, stop) || messages.over() }); err != nil {
			return err
		}
		switch took := time.Since(began); {
		case took < fastBatch && len(batch) >= r.batch:
			r.batch = min(2*r.batch, most)
		case took > slowBatch:
			r.batch = max(1, r.batch/2)
		}
		r.over(timeout, stop)
		idle.restart()
		messages.setRoom(r.batch)
	}
	return nil
}

// over reports whether --timeout has ended the run.
func (r *consumeRun) over(timeout *limit, stop func()) bool {
	select {
	case <-timeout.c:
		r.end("timeout", stop)
	default:
	}
	return r.ended != ""
}

func (r *consumeRun) end(why string, stop func()) {
	if r.ended == "" {
		r.ended = why
	}
	stop()
}

// write writes the lines of a batch, settles the messages whose lines were taken, and gives the others back. last
// reports whether the run ends after it: it waits for its reader for readerTime then, else for as long as it takes.
func (r *consumeRun) write(ctx context.Context, batch []*client.Delivery, last func() bool) error {
	r.buf, r.ends = r.buf[:0], r.ends[:0]
	for _, d := range batch {
		r.line(d)
		r.ends = append(r.ends, len(r.buf))
	}
	bytes, err := r.put(ctx, batch, last)
	taken, _ := slices.BinarySearch(r.ends, bytes+1) // how many end at bytes or before
	r.settle(batch[:taken])
	release(batch[taken:])
	return err
}

// put writes buf and answers how much of it was taken: by the reader, if stdout is a pipe, as what is left in a pipe
// without a reader is lost; else by the write. While it waits it keeps the batch locked.
func (r *consumeRun) put(ctx context.Context, batch []*client.Delivery, last func() bool) (taken int, err error) {
	type result struct {
		n   int
		err error
	}
	written := make(chan result, 1)
	go func() { // left behind when the process is about to end: nothing can end a write that nobody takes
		n, err := r.app.stdout.Write(r.buf)
		written <- result{n, err}
	}()
	var done *result
	pause := 50 * time.Microsecond
	var ends time.Time
	before := math.MaxInt
	locked := time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case res := <-written:
			done = &res
		case <-timer.C:
		}
		if done != nil {
			left, known := 0, r.pipe != nil
			if known {
				left, known = r.pipe.unread()
			}
			if known = known && left <= before; !known { // else others write to the pipe, too, and nobody knows whose is what is left
				r.pipe, left = nil, 0
			}
			before = left
			taken = max(0, done.n-left)
			switch {
			case done.err != nil:
				return taken, outputError(done.err)
			case left == 0:
				return done.n, nil
			case r.pipe.broken():
				left, _ = r.pipe.unread() // the last it took may have been between the two looks
				return max(0, done.n-left), outputError(syscall.EPIPE)
			}
		}
		now := time.Now()
		if ends.IsZero() && (ctx.Err() != nil || last()) {
			ends = now.Add(readerTime)
		}
		switch {
		case ends.IsZero() || now.Before(ends):
		case done == nil:
			return 0, nil
		default:
			return done.n, nil // its reader is there, and has it in its pipe
		}
		if lock := r.con.LockTimeout(); lock > 0 && now.Sub(locked) > lock/3 {
			locked = now
			for _, d := range batch {
				d.Extend(lock)
			}
		}
		pause = min(2*pause, 10*time.Millisecond)
		timer.Reset(pause)
	}
}

func outputError(cause error) error {
	return core.Errorf(core.CodeInternal, "output cannot be written: %w; what was not written was released", cause)
}

// limit is a timer that may be absent; it fires once.
type limit struct {
	d     time.Duration
	timer *time.Timer
	c     <-chan time.Time
}

func newLimit(d time.Duration) *limit {
	if d == 0 {
		return &limit{}
	}
	t := time.NewTimer(d)
	return &limit{d: d, timer: t, c: t.C}
}

// startAt has the timer count from an earlier time.
func (l *limit) startAt(t time.Time) {
	if l.timer != nil {
		l.timer.Reset(l.d - time.Since(t))
	}
}

func (l *limit) restart() {
	if l.timer != nil {
		l.timer.Reset(l.d)
	}
}

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// line adds a message to what is to be written.
func (r *consumeRun) line(d *client.Delivery) {
	switch r.app.format {
	case formatJSON:
		r.buf = appendDelivery(r.buf, d)
	case formatYAML:
		out := printer{w: (*bytesWriter)(&r.buf), format: formatYAML}
		out.yaml(append(append([]byte{'['}, appendDelivery(nil, d)...), ']'))
	default:
		body, token := d.Body, []byte(d.Token)
		if r.screen {
			body, token = printableLines(body), printableLines(token)
		}
		if r.flags.ack == ackTokens {
			r.buf = append(append(r.buf, token...), '\t')
		}
		r.buf = append(append(r.buf, body...), '\n')
	}
}

// settle acknowledges messages whose lines were taken, or does what the flags say instead.
func (r *consumeRun) settle(printed []*client.Delivery) {
	if len(printed) == 0 {
		return
	}
	r.bar.add(len(printed))
	r.last = time.Now()
	for _, d := range printed {
		r.total++
		if r.flags.ack != ackAuto {
			continue
		}
		var err error
		if n := r.flags.nackEvery; n > 0 && r.total%n == 0 {
			err = d.Nack(client.Reason("nack-every " + strconv.FormatInt(n, 10)))
		} else {
			err = d.Ack()
		}
		if err != nil {
			r.refused.Add(1)
		}
	}
}

// appendDelivery is the JSON line of a message.
func appendDelivery(b []byte, d *client.Delivery) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, d.ID.String()...)
	b = append(b, `","receipt":"`...)
	b = append(b, d.Receipt.String()...)
	b = append(b, '"')
	b = appendBytes(b, "payload", d.Body)
	b = append(b, `,"extent":"`...)
	b = append(b, d.Receipt.Extent.String()...)
	b = append(b, `","seq":`...)
	b = strconv.AppendUint(b, uint64(d.Receipt.Seq), 10)
	b = append(b, `,"enqueued":"`...)
	b = d.Enqueued.UTC().AppendFormat(b, timeLayout)
	b = append(b, `","attempt":`...)
	b = strconv.AppendInt(b, int64(d.Attempt), 10)
	b = append(b, `,"key":`...)
	b = appendString(b, d.Key())
	b = append(b, `,"headers":`...)
	b = appendJSON(b, headers(d.Headers()))
	b = appendBytes(b, "metadata", d.Metadata())
	b = append(b, `,"token":`...)
	b = appendString(b, d.Token)
	return append(b, "}\n"...)
}

// appendBytes adds a field of bytes: as text, or under another name as base64 when they are none.
func appendBytes(b []byte, name string, value []byte) []byte {
	b = append(append(b, `,"`...), name...)
	if utf8.Valid(value) {
		return appendString(append(b, `":`...), string(value))
	}
	b = append(b, `_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, value), '"')
}

// appendString encodes a JSON string; plain ASCII, the usual case, needs no encoder.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return appendJSON(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// bytesWriter appends to a slice.
type bytesWriter []byte

func (w *bytesWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}
