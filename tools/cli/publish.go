package cli

import (
	"cmp"
	"context"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// publisher is what publishing needs of client.Publisher.
type publisher interface {
	PublishAsync(ctx context.Context, m client.Message, done func(client.Receipt, error)) error
	Close(ctx context.Context) error
}

// publishFlags say what becomes of the input.
type publishFlags struct {
	file        string
	whole, null bool
	key         string
	headers     []string
	idFromLine  bool
	delay       time.Duration
	expire      time.Duration
	expires     bool // --expire was given
	at          string
	rate        float64
	inFlight    int
}

const (
	defaultInFlight = 16384
	inFlightBytes   = 32 << 20
	// drainTime is how long an interrupted command waits for what is under way.
	drainTime = 5 * time.Second
)

func (a *app) publishCommand() *cobra.Command {
	var flags publishFlags
	cmd := &cobra.Command{
		Use: "publish PATH", Aliases: []string{"p", "pub", "w", "write"},
		Short: "Publish messages: one per line of stdin or a file",
		Long: "Publish one message per line of stdin or a file; an empty line is an empty message. The command ends when every message\n" +
			"is durable on all replicas, or has failed; exit code 1 says that some were not acknowledged. When the queue is deleted it ends\n" +
			"with exit code 3, and does not read the rest of the input.\n\n" +
			"With -o json each message is reported as soon as its outcome is known, in any order:\n" +
			`  {"line":1,"id":"…","receipt":"extent:seq","ok":true}` + "\n" +
			`  {"line":2,"ok":false,"error":"too_large","outcome":"failed"}` + "\n" +
			"outcome is failed (it is not stored) or unknown (it may be stored).",
		Example: "  seq 1 100000 | columba publish /demo/trips\n" +
			"  echo 'time to go' | columba publish /demo/trips --delay 30m\n" +
			"  columba publish /demo/trips --file trips.jsonl --key rider-7 --header source=import -o json\n" +
			"  columba publish /demo/images --whole < cat.jpg",
		Args: exactly(1), ValidArgsFunction: a.completeQueues,
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		flags.expires = cmd.Flags().Changed("expire")
		return a.publish(ctx, args[0], flags)
	})
	f := cmd.Flags()
	f.StringVarP(&flags.file, "file", "f", "", "read this file instead of stdin")
	f.BoolVar(&flags.whole, "whole", false, "the whole input is one message")
	f.BoolVar(&flags.null, "null", false, "messages end in a NUL byte instead of a newline")
	f.StringVar(&flags.key, "key", "", "key of the messages, carried to the consumers; it gives no order")
	f.StringArrayVar(&flags.headers, "header", nil, "header name=value of the messages; repeat it for another name")
	f.BoolVar(&flags.idFromLine, "id-from-line", false, "make each message's id from its content, so that the same line has the same id in every run")
	durationVar(f, &flags.delay, "delay", 0, "deliver this long after it was published, at most a year")
	durationVar(f, &flags.expire, "expire", 0, "do not deliver a message any more this long after it was published")
	f.StringVar(&flags.at, "at", "", "deliver at this time, like 2026-01-02T15:04:05Z or 2026-01-02, at most a year ahead")
	f.Float64Var(&flags.rate, "rate", 0, "at most this many messages per second; 0: no limit")
	f.IntVar(&flags.inFlight, "in-flight", defaultInFlight, "at most this many messages without an outcome")
	return cmd
}

// message is what all messages have in common.
func (p *publishFlags) message() (client.Message, error) {
	m := client.Message{Key: p.key, Delay: p.delay}
	for _, h := range p.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return m, core.Errorf(core.CodeBadArgument, "header %q is not name=value", clip(h))
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		if _, again := m.Headers[name]; again {
			return m, core.Errorf(core.CodeBadArgument, "header %q is given twice; a message has one value of each", clip(name))
		}
		m.Headers[name] = value
	}
	if p.at != "" {
		at, err := core.ParseTime(p.at)
		if err != nil {
			return m, core.Errorf(core.CodeBadArgument, "--at %w", err)
		}
		if err := core.CheckAhead(at, time.Now()); err != nil {
			return m, err
		}
		m.DeliverAt = at
	}
	switch {
	case p.delay < 0:
		return m, core.Errorf(core.CodeBadArgument, "delay %s is negative; use something like 30s", core.FormatDuration(p.delay))
	case p.delay > core.MaxAhead:
		return m, core.Errorf(core.CodeBadArgument, "delay %s is longer than a year (%s)", core.FormatDuration(p.delay), core.FormatDuration(core.MaxAhead))
	case p.expire < 0 || p.expire == 0 && p.expires:
		return m, core.Errorf(core.CodeBadArgument, "expire %s is not above 0; use something like 1h", p.expire)
	case p.expire > 0 && core.CheckExpiry(time.Now().Add(p.expire), cmp.Or(m.DeliverAt, time.Now().Add(p.delay))) != nil:
		return m, core.Errorf(core.CodeBadArgument, "expire %s is not after the message is due, so no group would get it; use a longer one", core.FormatDuration(p.expire))
	case p.delay > 0 && p.at != "":
		return m, core.Errorf(core.CodeBadArgument, "delay and at are both set; use one of them")
	case !(p.rate >= 0) || math.IsInf(p.rate, 1): // NaN too
		return m, core.Errorf(core.CodeBadArgument, "rate %g is not a number of 0 or more; use 0 for no limit", p.rate)
	case p.inFlight < 1:
		return m, core.Errorf(core.CodeBadArgument, "in-flight %d is not above 0", p.inFlight)
	case p.whole && p.null:
		return m, core.Errorf(core.CodeBadArgument, "whole and null are both set; use one of them")
	}
	return m, nil
}

func (a *app) publish(ctx context.Context, path string, flags publishFlags) error {
	path, err := core.ParseAnyQueuePath(path)
	if err != nil {
		return err
	}
	common, err := flags.message()
	if err != nil {
		return err
	}
	input, total, done, err := a.input(flags.file)
	if err != nil {
		return err
	}
	defer done()
	pub, release, err := a.openPublisher(ctx, path, flags.inFlight)
	if err != nil {
		return err
	}
	defer release()
	run := &publishRun{app: a, path: path, common: common, flags: flags, bar: a.byteProgress("publishing", total), started: time.Now()}
	if isTerminal(input) {
		a.say("reading messages from this terminal, one per line; Ctrl-D at the beginning of a line ends them")
		run.bar = &progress{} // it would be drawn over what is typed
	}
	return run.all(ctx, pub, input)
}

// openPublisher connects to a queue; release ends the connection.
func (a *app) openPublisher(ctx context.Context, path string, inFlight int) (pub publisher, release func(), err error) {
	if a.fakePublisher != nil {
		return a.fakePublisher, func() {}, nil
	}
	c, err := a.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	p, err := c.Publisher(limited, path, client.MaxInFlight(inFlight, inFlightBytes), client.PublishTimeout(a.timeout))
	if err != nil {
		c.Close()
		return nil, nil, publishError(path, a.callError(ctx, err))
	}
	return p, func() { c.Close() }, nil
}

// publishError says where to publish instead of a queue that belongs to a group.
func publishError(path string, err error) error {
	if core.CodeOf(err) == core.CodeUnsupported && builtIn(path) {
		return core.Errorf(core.CodeUnsupported, "%w; publish to %s instead", err, path[:strings.LastIndexByte(path, '/')])
	}
	return err
}

// input is the file, or stdin for "", and its size in bytes if it is known, else 0.
func (a *app) input(file string) (r io.Reader, total int64, done func(), err error) {
	r, done = a.stdin, func() {}
	if file != "" && file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, 0, nil, core.Errorf(core.CodeBadArgument, "file %q cannot be read: %w", clip(file), rootCause(err))
		}
		r, done = f, func() { f.Close() }
	}
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		switch {
		case err != nil:
		case info.IsDir():
			done()
			return nil, 0, nil, core.Errorf(core.CodeBadArgument, "input %s is a directory; name a file", f.Name())
		case info.Mode().IsRegular():
			total = info.Size()
		}
	}
	return r, total, done, nil
}
