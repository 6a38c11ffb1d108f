package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// consumeRun prints messages and settles what was printed.
type consumeRun struct {
	app          *app
	queue, group string
	flags        consumeFlags
	bar          *progress
	started      time.Time

	buf     []byte             // lines not yet written
	printed []*client.Delivery // whose lines are in buf
	total   int64
	refused atomic.Int64
	ended   string // why the run ended, when it was neither count nor interrupt
}

const (
	// unsettled messages and their bytes at most wait for their lines to be written while more messages come.
	unsettledMessages = 256
	unsettledBytes    = 256 << 10
)

// all prints messages until something ends the run.
func (r *consumeRun) all(ctx context.Context, con *client.Consumer) error {
	receiving, stop := context.WithCancel(ctx)
	messages := make(chan *client.Delivery, unsettledMessages)
	var failure error // of the receiver; read after messages is closed
	go func() {
		defer close(messages)
		failure = r.receive(receiving, con, messages)
	}()
	err := r.print(ctx, stop, messages)
	stop()
	for range messages {
		// After a failed write nothing more can be said: what came meanwhile stays locked and comes again.
	}
	r.bar.finish()
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	cerr := con.Close(finish)
	if err == nil {
		err = failure
	}
	if err == nil && cerr != nil {
		err = r.app.callError(context.WithoutCancel(ctx), cerr)
	}
	return r.summary(ctx, err)
}

// receive hands on messages, at most --count, until ctx ends.
func (r *consumeRun) receive(ctx context.Context, con *client.Consumer, to chan<- *client.Delivery) error {
	var n int64
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		to <- d // print, or all after it, receives until the channel is closed
		if n++; n == r.flags.count {
			return nil
		}
	}
	return nil
}

// print writes and settles messages; it calls stop when no more are wanted and returns when messages is closed.
func (r *consumeRun) print(ctx context.Context, stop func(), messages <-chan *client.Delivery) error {
	timeout, idle := newLimit(r.flags.timeout), newLimit(r.flags.idle)
	defer timeout.stop()
	defer idle.stop()
	for {
		var d *client.Delivery
		open := true
		select {
		case d, open = <-messages:
		default:
			if err := r.settle(); err != nil {
				return err
			}
			select {
			case d, open = <-messages:
			case <-timeout.c:
				r.end("timeout", stop)
				continue
			case <-idle.c:
				r.end("idle", stop)
				continue
			}
		}
		if !open {
			return r.settle()
		}
		idle.restart()
		r.line(d)
		if len(r.printed) >= unsettledMessages || len(r.buf) >= unsettledBytes {
			if err := r.settle(); err != nil {
				return err
			}
			select {
			case <-timeout.c:
				r.end("timeout", stop)
			default:
			}
		}
	}
}

func (r *consumeRun) end(why string, stop func()) {
	if r.ended == "" {
		r.ended = why
	}
	stop()
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
	r.total++
	r.printed = append(r.printed, d)
	switch r.app.format {
	case formatJSON:
		r.buf = appendDelivery(r.buf, d)
	case formatYAML:
		out := printer{w: (*bytesWriter)(&r.buf), format: formatYAML}
		out.yaml(append(append([]byte{'['}, appendDelivery(nil, d)...), ']'))
	default:
		if r.flags.ack == ackTokens {
			r.buf = append(append(r.buf, d.Token...), '\t')
		}
		r.buf = append(append(r.buf, d.Body...), '\n')
	}
}

// settle writes the lines gathered and then settles their messages, in this order: a killed command prints twice, it loses nothing.
func (r *consumeRun) settle() error {
	if len(r.buf) > 0 {
		if _, err := r.app.stdout.Write(r.buf); err != nil {
			return core.Errorf(core.CodeInternal, "output cannot be written; %d messages were not acknowledged: %w", len(r.printed), err)
		}
		r.buf = r.buf[:0]
	}
	r.bar.add(len(r.printed))
	first := r.total - int64(len(r.printed)) + 1
	for i, d := range r.printed {
		r.printed[i] = nil
		if r.flags.ack != ackAuto {
			continue
		}
		var err error
		if n := r.flags.nackEvery; n > 0 && (first+int64(i))%n == 0 {
			err = d.Nack(client.Reason("nack-every " + strconv.FormatInt(n, 10)))
		} else {
			err = d.Ack()
		}
		if err != nil {
			r.refused.Add(1)
		}
	}
	r.printed = r.printed[:0]
	return nil
}

func (r *consumeRun) summary(ctx context.Context, err error) error {
	took := time.Since(r.started)
	r.total -= int64(len(r.printed)) // not written
	r.app.say("%s consumed from %s by %s in %s (%.0f/s)", plural(r.total, "message"), r.queue, r.group, took.Round(time.Millisecond), float64(r.total)/took.Seconds())
	if n := r.refused.Load(); n > 0 {
		r.app.say("%d acknowledgements were refused or came too late: these messages come again", n)
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		r.app.say("nobody reads the output any more; what was not written to it comes again")
		return errFailed
	case err != nil && !errors.Is(err, context.Canceled):
		return err
	case r.flags.count == 0 || r.total >= r.flags.count:
		return nil
	case ctx.Err() != nil:
		r.app.say("interrupted before %d messages had come", r.flags.count)
		return errFailed
	case r.ended == "timeout":
		return core.Errorf(core.CodeDeadline, "%d of %d messages came within %s; allow more with --timeout", r.total, r.flags.count, r.flags.timeout)
	}
	return nil
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
