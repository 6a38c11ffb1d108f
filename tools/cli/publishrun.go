package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// publishRun publishes one input. One goroutine reads it, and the publisher's reports outcomes.
type publishRun struct {
	app     *app
	path    string
	common  client.Message
	flags   publishFlags
	bar     *progress
	started time.Time

	taken  atomic.Int64 // given to the publisher
	acked  atomic.Int64
	gone   chan error // of one: the queue does not exist any more
	report struct {
		sync.Mutex // outcomes come from two goroutines: refused at once, or later
		failed     int64
		unknown    int64
		away       int64 // of failed and unknown: the server did not answer
		out        *printer
		buf        bytes.Buffer // JSON lines not yet written
		err        error        // of stdout
	}
}

const (
	// listedFailures is how many failures are told on stderr; the rest are counted.
	listedFailures = 10
	// reportBytes of JSON lines are gathered before they are written.
	reportBytes = 32 << 10
	flushEvery  = 100 * time.Millisecond
)

// all publishes the input and waits for every outcome.
func (p *publishRun) all(ctx context.Context, pub publisher, input io.Reader) error {
	p.report.out = &printer{w: &p.report.buf, format: p.app.format}
	p.gone = make(chan error, 1)
	reading, stop := context.WithCancel(ctx)
	read := make(chan error, 1)
	// The reader is not waited for when it hangs in a read of stdin at an interrupt: nothing can end that read.
	go func() { read <- p.read(reading, pub, input) }()
	err := p.wait(ctx, read)
	stop()

	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.app.timeout+drainTime)
	if ctx.Err() != nil {
		cancel()
		finish, cancel = context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	}
	defer cancel()
	cerr := pub.Close(finish)
	p.bar.finish()
	p.flush()
	if err == nil {
		select {
		case err = <-p.gone:
		default:
			if cerr != nil {
				err = p.app.callError(ctx, cerr)
			}
		}
	}
	return p.summary(ctx, err)
}

// wait returns when the input was read, ctx ended, the queue is gone or the server is away, and writes gathered
// outcomes until then.
func (p *publishRun) wait(ctx context.Context, read <-chan error) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	acked, lastAck := int64(0), time.Now()
	for {
		select {
		case err := <-read:
			return err
		case err := <-p.gone:
			return err
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.flush()
		}
		if n := p.acked.Load(); n != acked {
			acked, lastAck = n, time.Now()
		}
		if p.isAway() && time.Since(lastAck) >= p.app.timeout {
			p.app.say("nothing was acknowledged for %s: giving up after %s, the rest of the input is not published", p.app.timeout, plural(p.taken.Load(), "message"))
			return errFailed
		}
	}
}

// isAway reports whether messages failed because the server did not answer for as long as they are tried.
func (p *publishRun) isAway() bool {
	p.report.Lock()
	defer p.report.Unlock()
	return p.report.away > 0
}

func (p *publishRun) read(ctx context.Context, pub publisher, input io.Reader) error {
	if p.flags.whole {
		body, err := whole(input, core.MaxMaxMessage)
		return p.one(ctx, pub, 1, body, err)
	}
	sep := byte('\n')
	if p.flags.null {
		sep = 0
	}
	lines := newSplitter(input, sep, core.MaxMaxMessage)
	for line := int64(1); ; line++ {
		body, err := lines.next()
		if err == io.EOF {
			return nil
		}
		if err := p.pace(ctx, line); err != nil {
			return nil // interrupted
		}
		if err := p.one(ctx, pub, line, body, err); err != nil {
			return err
		}
	}
}

// pace keeps to --rate.
func (p *publishRun) pace(ctx context.Context, line int64) error {
	if p.flags.rate == 0 {
		return ctx.Err()
	}
	after := float64(line-1) / p.flags.rate * float64(time.Second)
	due := p.started.Add(time.Duration(min(after, math.MaxInt64/2))) // more is no time.Duration, and would be no wait at all
	wait := time.Until(due)
	if wait < time.Millisecond {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// one gives a line to the publisher, or reports why it cannot. An error ends the run.
func (p *publishRun) one(ctx context.Context, pub publisher, line int64, body []byte, err error) error {
	if err == nil {
		m := p.common
		m.Body = body
		if p.flags.expire > 0 {
			m.ExpireAt = time.Now().Add(p.flags.expire)
		}
		if p.flags.idFromLine {
			m.ID = contentID(body)
		}
		p.taken.Add(1)
		err = pub.PublishAsync(ctx, m, func(r client.Receipt, err error) { p.outcome(line, r, err) })
		if err != nil {
			p.taken.Add(-1)
		}
	}
	p.bar.add(len(body) + 1)
	switch core.CodeOf(err) {
	case "":
		return p.stdoutError()
	case core.CodeTooLarge, core.CodeBadArgument:
		p.taken.Add(1)
		p.outcome(line, client.Receipt{}, err)
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *publishRun) outcome(line int64, r client.Receipt, err error) {
	if err == nil {
		p.acked.Add(1)
		if p.app.format == formatTable {
			return
		}
	}
	p.report.Lock()
	defer p.report.Unlock()
	if err != nil {
		p.failure(line, err)
	}
	switch p.app.format {
	case formatJSON:
		p.report.buf.Write(appendOutcome(p.report.buf.AvailableBuffer(), line, r, err))
	case formatYAML:
		p.report.out.item(outcomeFields(line, r, err))
	}
	if p.report.buf.Len() >= reportBytes {
		p.flushLocked()
	}
}

// failure counts a failed line and prints the first ones. A deleted queue ends the run, and is reported once, as its
// error.
func (p *publishRun) failure(line int64, err error) {
	if core.CodeOf(err).Class() == core.ClassUnknown {
		p.report.unknown++
	} else {
		p.report.failed++
	}
	if core.CodeOf(err).Exit() == core.ExitUnavailable {
		p.report.away++
	}
	if core.CodeOf(err) == core.CodeNotFound {
		select {
		case p.gone <- err:
		default:
		}
		return
	}
	if n := p.report.failed + p.report.unknown; n <= listedFailures {
		if _, todo := splitHint(err.Error()); todo == "" && core.CodeOf(err) == core.CodeUnknown {
			err = core.Errorf(core.CodeUnknown, "%w; publish it again if a duplicate does less harm than a loss", err)
		}
		p.app.complain("line "+strconv.FormatInt(line, 10), err)
	} else if n == listedFailures+1 {
		p.app.say("more failures are only counted")
	}
}

// flush writes gathered outcomes.
func (p *publishRun) flush() {
	p.report.Lock()
	defer p.report.Unlock()
	p.flushLocked()
}

func (p *publishRun) flushLocked() {
	if p.report.err == nil && p.report.buf.Len() > 0 {
		_, p.report.err = p.app.stdout.Write(p.report.buf.Bytes())
	}
	p.report.buf.Reset()
}

func (p *publishRun) stdoutError() error {
	p.report.Lock()
	defer p.report.Unlock()
	return p.report.err
}

// summary says what became of the messages and turns it into the command's error.
func (p *publishRun) summary(ctx context.Context, err error) error {
	p.report.Lock()
	defer p.report.Unlock()
	acked, took := p.acked.Load(), time.Since(p.started)
	open := max(0, p.taken.Load()-acked-p.report.failed-p.report.unknown)
	if ctx.Err() != nil {
		p.app.say("interrupted: %s acknowledged, %d not stored, %d unknown", plural(acked, "message"), p.report.failed, p.report.unknown+open)
		return errFailed
	}
	if err == nil {
		err = p.report.err
	}
	p.app.say("%s published to %s in %s (%.0f/s)", plural(acked, "message"), p.path, took.Round(time.Millisecond), float64(acked)/took.Seconds())
	lost := p.report.failed + p.report.unknown + open
	if lost > 0 {
		p.app.say("%d not stored, %d unknown", p.report.failed, p.report.unknown+open)
		if err == nil {
			return errFailed
		}
	}
	return err
}

func outcomeFields(line int64, r client.Receipt, err error) []field {
	if err != nil {
		return []field{
			{name: "line", value: line}, {name: "ok", value: false},
			{name: "error", value: string(core.CodeOf(err))}, {name: "outcome", value: outcomeWord(err)},
		}
	}
	return []field{
		{name: "line", value: line}, {name: "id", value: r.ID.String()}, {name: "receipt", value: r.Receipt.String()}, {name: "ok", value: true},
	}
}

// appendOutcome is outcomeFields in JSON, without their allocations.
func appendOutcome(b []byte, line int64, r client.Receipt, err error) []byte {
	if err != nil {
		return append(append(b, encode(outcomeFields(line, r, err))...), '\n')
	}
	b = append(b, `{"line":`...)
	b = strconv.AppendInt(b, line, 10)
	b = append(b, `,"id":"`...)
	b = append(b, r.ID.String()...)
	b = append(b, `","receipt":"`...)
	b = append(b, r.Extent.String()...)
	b = append(b, ':')
	b = strconv.AppendUint(b, uint64(r.Seq), 10)
	return append(b, "\",\"ok\":true}\n"...)
}

func outcomeWord(err error) string {
	if core.CodeOf(err).Class() == core.ClassUnknown || errors.Is(err, context.Canceled) {
		return "unknown"
	}
	return "failed"
}

// contentID is a name-based id (UUID version 8): the same bytes have always the same id.
func contentID(body []byte) client.MessageID {
	sum := sha256.Sum256(body)
	id := core.ID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return client.MessageID{ID: id}
}
