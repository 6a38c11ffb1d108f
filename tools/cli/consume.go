package cli

import (
	"context"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// consumeFlags say how much to consume and what becomes of it.
type consumeFlags struct {
	count         int64
	timeout, idle time.Duration
	prefetch      int
	prefetchBytes size
	ack           string
	nackEvery     int64
}

// The values of --ack.
const (
	ackAuto   = "auto"
	ackNone   = "none"
	ackTokens = "tokens"
)

func (a *app) consumeCommand() *cobra.Command {
	flags := consumeFlags{prefetchBytes: 8 << 20}
	cmd := &cobra.Command{
		Use: "consume PATH GROUP", Aliases: []string{"sub", "r", "read"},
		Short: "Consume messages: one payload per line",
		Long: "Consume messages of a group and print one payload per line. A message is acknowledged after its line was written, or\n" +
			"read by the command behind a pipe. If the command is killed no message is lost. The command runs until interrupted, or until --count, --idle or\n" +
			"--timeout ends it. If --timeout ends it before --count is reached, the exit code is 5.\n\n" +
			"On a terminal, characters that could control it are escaped. Files and pipes get the exact bytes.\n\n" +
			"With -o json each line is\n" +
			`  {"id","receipt","payload" or "payload_base64","extent","seq","enqueued","attempt","key","headers","metadata","token"}`,
		Example: "  columba consume /demo/trips billing --count 10\n" +
			"  columba consume /demo/trips billing --idle 2s -o json",
		Args: exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error { return a.consume(ctx, args, flags) }),
	}
	f := cmd.Flags()
	f.Int64Var(&flags.count, "count", 0, "end after this many messages, and ask for no more; 0 for no end")
	durationVar(f, &flags.timeout, "timeout", 0, "end after this long; 0 for no end")
	durationVar(f, &flags.idle, "idle", 0, "end after this long without a message; 0 for no end")
	f.IntVar(&flags.prefetch, "prefetch", 1000, "hold at most this many unprinted messages, from all output hosts together, and the one being printed")
	f.Var(&flags.prefetchBytes, "prefetch-bytes", "hold at most this many bytes of unprinted messages, like 8MiB; one larger message is still accepted")
	f.StringVar(&flags.ack, "ack", ackAuto, "auto: after the line was written; none: leave them locked; tokens: print tokens for columba ack")
	suggest(cmd, "ack", ackAuto, ackNone, ackTokens)
	f.Int64Var(&flags.nackEvery, "nack-every", 0, "nack every Nth message instead of acknowledging it")
	return cmd
}

func (c *consumeFlags) check() error {
	switch {
	case c.count < 0:
		return core.Errorf(core.CodeBadArgument, "count %d is negative; use 0 for no end", c.count)
	case c.timeout < 0 || c.idle < 0:
		return core.Errorf(core.CodeBadArgument, "timeout and idle must not be negative; use something like 5s")
	case c.prefetch < 1 || c.prefetch > math.MaxInt32:
		return core.Errorf(core.CodeBadArgument, "prefetch %d is not in 1 … %d", c.prefetch, math.MaxInt32)
	case c.prefetchBytes < 1 || c.prefetchBytes > math.MaxInt32:
		return core.Errorf(core.CodeBadArgument, "prefetch-bytes %d is not in 1 … %d", c.prefetchBytes, math.MaxInt32)
	case c.nackEvery < 0:
		return core.Errorf(core.CodeBadArgument, "nack-every %d is negative; use 0 for never", c.nackEvery)
	case c.ack != ackAuto && c.ack != ackNone && c.ack != ackTokens:
		return core.Errorf(core.CodeBadArgument, "ack %q is not auto, none or tokens", clip(c.ack))
	case c.nackEvery > 0 && c.ack != ackAuto:
		return core.Errorf(core.CodeBadArgument, "nack-every needs --ack auto; with %s nothing is settled", c.ack)
	}
	return nil
}

func (a *app) consume(ctx context.Context, args []string, flags consumeFlags) error {
	queue, group, err := groupName(args)
	if err != nil {
		return err
	}
	if err := flags.check(); err != nil {
		return err
	}
	if _, ok := a.stdout.(*os.File); ok {
		signal.Ignore(syscall.SIGPIPE) // a reader that has enough fails a write: what was not printed is given back before the end
	}
	run := &consumeRun{app: a, queue: queue, group: group, flags: flags, started: time.Now(), bar: &progress{}}
	if flags.timeout > 0 {
		a.timeout = min(a.timeout, flags.timeout)
	}
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if run.screen = a.terminal(a.stdout); !run.screen { // else the messages themselves are on the screen
		run.bar = a.progress("consuming", int(flags.count))
	}
	con, err := run.connect(ctx, c)
	if err != nil {
		return err
	}
	return run.all(ctx, con)
}

// bounds divide what may be held unprinted: batch messages of batchBytes are with the printer, the client library has
// the rest.
func (c *consumeFlags) bounds() (batch, prefetch, batchBytes int) {
	batch = max(1, min(maxBatch, c.prefetch/2))
	return batch, max(1, c.prefetch+1-batch), int(max(1, min(handoffBytes, c.prefetchBytes/2)))
}

func (r *consumeRun) options() []client.ConsumerOption {
	_, prefetch, batchBytes := r.flags.bounds()
	opts := []client.ConsumerOption{
		client.OnRefused(func(client.Refusal) { r.refused.Add(1) }), client.Prefetch(prefetch), client.PrefetchBytes(max(1, int(r.flags.prefetchBytes)-batchBytes)),
	}
	if r.flags.count > 0 {
		opts = append(opts, client.Limit(int(min(r.flags.count, math.MaxInt))))
	}
	if r.flags.ack == ackTokens {
		opts = append(opts, client.WithTokens())
	}
	return opts
}
