package cli

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// benchFlags say how long and how hard.
type benchFlags struct {
	size      size
	count     int64
	duration  time.Duration
	inFlight  int
	producers int
	consumers int
	idle      time.Duration
}

// benchResult is what one goroutine, or all of them, did.
type benchResult struct {
	messages, bytes, errors int64
	latency                 histogram
}

func (b *benchResult) merge(o *benchResult) {
	b.messages += o.messages
	b.bytes += o.bytes
	b.errors += o.errors
	b.latency.merge(&o.latency)
}

func (a *app) benchCommand() *cobra.Command {
	return parent("bench", "Measure rates and latencies of a queue", a.benchPublishCommand(), a.benchConsumeCommand(), a.benchLatencyCommand())
}

func (a *app) benchPublishCommand() *cobra.Command {
	flags := benchFlags{size: 1024}
	cmd := &cobra.Command{
		Use: "publish PATH", Short: "Publish as fast as it goes; the latency is from publish to acknowledgement",
		Example: "  columba bench publish /bench/a --size 1KiB --producers 4 --duration 10s -o json",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			return a.bench(ctx, "publish", args, flags, flags.producers, benchPublisher)
		}),
	}
	flags.register(cmd)
	cmd.Flags().Var(&flags.size, "size", "payload of a message, like 1KiB")
	cmd.Flags().IntVar(&flags.inFlight, "in-flight", 4096, "messages of a producer without an acknowledgement")
	cmd.Flags().IntVar(&flags.producers, "producers", 1, "publishers at once")
	return cmd
}

func (a *app) benchConsumeCommand() *cobra.Command {
	flags := benchFlags{}
	cmd := &cobra.Command{
		Use: "consume PATH GROUP", Short: "Consume and acknowledge as fast as it goes; the latency is from enqueueing to delivery",
		Example: "  columba bench consume /bench/a g --consumers 2 --count 100000",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			return a.bench(ctx, "consume", args, flags, flags.consumers, benchConsumer)
		}),
	}
	flags.register(cmd)
	cmd.Flags().IntVar(&flags.inFlight, "prefetch", 4096, "messages a consumer holds that are not acknowledged")
	cmd.Flags().IntVar(&flags.consumers, "consumers", 1, "consumers at once")
	durationVar(cmd.Flags(), &flags.idle, "idle", 2*time.Second, "end after this long without a message")
	return cmd
}

func (a *app) benchLatencyCommand() *cobra.Command {
	flags := benchFlags{size: 1024, inFlight: 1}
	cmd := &cobra.Command{
		Use: "latency PATH", Short: "Publish one message at a time; the latency is from publish to acknowledgement",
		Example: "  columba bench latency /bench/a --count 1000",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			return a.bench(ctx, "latency", args, flags, 1, benchLatency)
		}),
	}
	flags.register(cmd)
	cmd.Flags().Var(&flags.size, "size", "payload of a message, like 1KiB")
	return cmd
}

func (b *benchFlags) register(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&b.count, "count", 0, "end after this many messages; 0 for no end")
	durationVar(cmd.Flags(), &b.duration, "duration", 0, "end after this long; default 10s when --count is not given")
}

func (b *benchFlags) check(kind string, workers int) error {
	who, held := "producers", "in-flight"
	if kind == "consume" {
		who, held = "consumers", "prefetch"
	}
	switch {
	case b.count < 0:
		return core.Errorf(core.CodeBadArgument, "count %d is negative; use 0 for no end", b.count)
	case b.duration < 0:
		return core.Errorf(core.CodeBadArgument, "duration %s is negative; use something like 10s", b.duration)
	case b.idle < 0:
		return core.Errorf(core.CodeBadArgument, "idle %s is negative; use something like 2s", b.idle)
	case workers < 1 || workers > 1024:
		return core.Errorf(core.CodeBadArgument, "%s %d is not in 1 … 1024", who, workers)
	case b.inFlight < 1:
		return core.Errorf(core.CodeBadArgument, "%s %d is not above 0", held, b.inFlight)
	case b.size < 0 || b.size > core.MaxMaxMessage:
		return core.Errorf(core.CodeBadArgument, "size %d is not in 0 … %d bytes", b.size, core.MaxMaxMessage)
	}
	if b.count == 0 && b.duration == 0 {
		b.duration = 10 * time.Second
	}
	return nil
}

// benchRun is shared by the workers of one benchmark.
type benchRun struct {
	app         *app
	client      *client.Client
	queue, name string // name is the group's
	flags       benchFlags
	left        atomic.Int64 // messages still to take
	bar         *progress
	lastSeen    atomic.Int64 // consume: when the last message came, unix ns
}

// take reports whether a worker may do one more message.
func (b *benchRun) take() bool { return b.left.Add(-1) >= 0 }

// bench runs work in several goroutines at once and prints what they did together.
func (a *app) bench(ctx context.Context, kind string, args []string, flags benchFlags, workers int, work func(context.Context, *benchRun, *benchResult) error) error {
	run := &benchRun{app: a, flags: flags}
	var err error
	if len(args) == 2 {
		run.queue, run.name, err = groupName(args)
	} else {
		run.queue, err = core.ParseAnyQueuePath(args[0])
	}
	if err != nil {
		return err
	}
	if err := run.flags.check(kind, workers); err != nil {
		return err
	}
	if run.client, err = a.dial(ctx); err != nil {
		return err
	}
	defer run.client.Close()
	run.left.Store(run.flags.count)
	if run.flags.count == 0 {
		run.left.Store(math.MaxInt64)
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if run.flags.duration > 0 {
		limited, cancel = context.WithTimeout(ctx, run.flags.duration)
	}
	defer cancel()
	run.bar = a.progress("messages", int(run.flags.count))
	defer run.bar.finish()
	results := make([]benchResult, workers)
	started := time.Now()
	group, limited := errgroup.WithContext(limited)
	for i := range results {
		group.Go(func() error { return work(limited, run, &results[i]) })
	}
	err = group.Wait()
	ended := time.Now()
	if last := run.lastSeen.Load(); last > 0 {
		ended = time.Unix(0, last) // the idle time at the end is no work
	}
	took := max(ended.Sub(started), time.Microsecond)
	run.bar.finish()
	if err != nil {
		return a.callError(context.WithoutCancel(ctx), err)
	}
	if ctx.Err() != nil {
		a.say("interrupted; these are the results so far")
	}
	var total benchResult
	for i := range results {
		total.merge(&results[i])
	}
	if err := a.printer().object(benchFields(kind, run, workers, &total, took)); err != nil {
		return err
	}
	if total.errors > 0 {
		return core.Errorf(core.CodeInternal, "%d messages were not acknowledged; see the server's log", total.errors)
	}
	return nil
}

func benchFields(kind string, run *benchRun, workers int, r *benchResult, took time.Duration) []field {
	seconds := took.Seconds()
	ms := func(q float64) float64 { return math.Round(r.latency.quantile(q).Seconds()*1e6) / 1e3 }
	return []field{
		{name: "bench", value: kind}, {name: "queue", value: run.queue}, {name: "group", value: run.name},
		{name: "workers", value: workers}, {name: "in_flight", value: run.flags.inFlight},
		{name: "messages", value: r.messages}, {name: "bytes", value: r.bytes}, {name: "errors", value: r.errors},
		{name: "seconds", value: math.Round(seconds*1e3) / 1e3},
		{name: "messages_per_s", value: math.Round(float64(r.messages) / seconds)},
		{name: "mb_per_s", value: math.Round(float64(r.bytes)/seconds/1e4) / 100},
		{name: "p50_ms", value: ms(0.5)}, {name: "p99_ms", value: ms(0.99)}, {name: "p999_ms", value: ms(0.999)},
	}
}
