package cli

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// noHostNote is how long consume waits for an output host before it says so.
const noHostNote = time.Second

// connect opens the consumer. It waits for an output host as long as --timeout and --idle allow, without them as long
// as one request may take.
func (r *consumeRun) connect(ctx context.Context, c *client.Client) (*client.Consumer, error) {
	limit, ends := r.app.timeout, ""
	for _, l := range []struct {
		name string
		d    time.Duration
	}{{"timeout", r.flags.timeout}, {"idle", r.flags.idle}} {
		if l.d > 0 && (ends == "" || l.d < limit) {
			limit, ends = l.d, l.name
		}
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said := make(chan struct{})
	note := time.AfterFunc(noHostNote, func() {
		defer close(said)
		r.app.say("note: no output host is known yet for group %s of %s; waiting for one", r.group, r.queue)
	})
	defer func() {
		if !note.Stop() {
			<-said
		}
	}()
	con, err := c.Consumer(limited, r.queue, r.group, r.options()...)
	switch {
	case err == nil:
		return con, nil
	case ends != "" && ctx.Err() == nil && limited.Err() != nil && !saysWhy(err):
		return nil, r.withoutHost(limit, ends)
	}
	return nil, r.app.callError(ctx, err)
}

// saysWhy reports whether the error of a consumer that is not connected has another cause than that no output host is
// known: an outage of the metadata, or a server that cannot be reached.
func saysWhy(err error) bool {
	cause := errors.Unwrap(err)
	return cause != nil && !errors.Is(cause, context.DeadlineExceeded) && !strings.Contains(cause.Error(), "no output host")
}

func (r *consumeRun) withoutHost(waited time.Duration, flag string) error {
	return core.Errorf(core.CodeUnavailable, "for %s no output host was known for group %s of %s, so none could be asked for messages; see `columba list hosts`: an output host and a controller have to be up; or allow more with --%s",
		waited, r.group, r.queue, flag)
}

// summary says what the run did and returns its error.
func (r *consumeRun) summary(ctx context.Context, err error) error {
	took := time.Since(r.started)
	if r.total > 0 {
		took = r.last.Sub(r.started) // the wait for a message that did not come is no work
	}
	r.app.say("%s consumed from %s by %s in %s (%.0f/s)", plural(r.total, "message"), r.queue, r.group, took.Round(time.Millisecond), float64(r.total)/took.Seconds())
	if n := r.flags.nackEvery; n > 0 {
		back := r.total / n
		r.app.say("%d acknowledged, %d nacked", r.total-back, back)
	}
	if unsettled := r.flags.ack == ackNone || r.flags.ack == ackTokens; unsettled && r.total > 0 && r.lock > 0 {
		unless := ""
		if r.flags.ack == ackTokens {
			unless = ", unless it is settled by its token"
		}
		r.app.say("not acknowledged: each message comes again %s after its delivery%s", core.FormatDuration(r.lock), unless)
	}
	if n := r.refused.Load(); n > 0 {
		r.app.say("%d acknowledgements were refused or came too late: these messages come again", n)
	}
	if r.unconfirmed != nil {
		r.app.say("not all acknowledgements were confirmed: some of the last messages may come again")
		if err == nil {
			err = r.app.callError(context.WithoutCancel(ctx), r.unconfirmed)
		}
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		r.app.say("the output is not read any more; unread messages were released")
		return errFailed
	case err != nil && !errors.Is(err, context.Canceled):
		return err
	case r.flags.count > 0 && r.total >= r.flags.count:
		return nil
	case r.noHost:
		return r.withoutHost(r.flags.idle, "idle")
	case r.ended == "idle":
		r.app.say("the command ended since no message came for %s (--idle)", r.flags.idle)
		return nil
	case r.flags.count == 0:
		return nil
	case ctx.Err() != nil:
		r.app.say("interrupted before %s had come", plural(r.flags.count, "message"))
		return errFailed
	case r.ended == "timeout":
		return core.Errorf(core.CodeDeadline, "%d of %d messages came within %s; allow more with --timeout. `columba why-stuck %s %s` says why no more come",
			r.total, r.flags.count, r.flags.timeout, r.queue, r.group)
	}
	return nil
}
