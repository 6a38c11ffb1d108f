package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// queueAliases are the words for a queue, the last ones of users who come from Cherami.
var queueAliases = []string{"q", "destination", "dest"}

// statuses are what --status takes.
var statuses = []string{"enabled", "disabled", "send-only", "receive-only"}

// queueFlags are the settings of a queue.
type queueFlags struct {
	set                     *pflag.FlagSet
	consistency, durability string
	replicas, minReplicas   int
	consumed, unconsumed    time.Duration
	maxMessage, maxBacklog  size
	status                  string
}

func (q *queueFlags) register(cmd *cobra.Command) {
	q.set = cmd.Flags()
	q.set.StringVar(&q.consistency, "consistency", "", "ap (available on both sides of a network cut; no order) or cp (each publisher's messages are delivered in order, like FIFO; the minority of a cut refuses); a new queue has ap")
	q.set.StringVar(&q.durability, "durability", "", "what an acknowledgement means: fsync or written (which has no effect yet: messages are fsynced); a new queue has fsync")
	suggest(cmd, "consistency", "ap", "cp")
	suggest(cmd, "durability", "fsync", "written")
	q.set.IntVar(&q.replicas, "replicas", 0, "copies of each message, 1 … 7; a new queue has what the cluster was started with")
	q.set.IntVar(&q.minReplicas, "min-replicas", 0, "stores that must be up to accept messages; a new queue has 2 when --replicas is above 1. With fewer stores than this the queue is refused")
	durationVar(q.set, &q.consumed, "consumed-retention", 0, "delete messages this long after every group has consumed them, like 12h; 0s: at once; a new queue has 24h")
	durationVar(q.set, &q.unconsumed, "unconsumed-retention", 0, "delete messages this long after their extent has ended, consumed or not, like 7d; 0s: never before they are consumed; a new queue has 72h")
	q.set.Var(&q.maxMessage, "max-message", "largest payload, like 4MiB, at most 16MiB; a new queue has 1MiB")
	q.set.Var(&q.maxBacklog, "max-backlog", "bytes that the group furthest behind may leave unconsumed, like 10GiB; beyond them publishers wait. 0: no limit")
}

func (q *queueFlags) registerStatus(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.status, "status", "", "enabled, disabled, send-only or receive-only")
	suggest(cmd, "status", statuses...)
}

// unsettable are the numbers of which 0 means nothing.
var unsettable = []string{"replicas", "min-replicas", "max-message"}

// spec is what was set, checked as far as it can be without the server. In an update a retention of 0 is left out: the
// names of the fields say it.
func (q *queueFlags) spec(creates bool) (*pb.QueueSpec, error) {
	for _, name := range unsettable {
		if f := q.set.Lookup(name); f.Changed && (f.Value.String() == "0" || f.Value.String() == "0s") {
			return nil, core.Errorf(core.CodeBadArgument, "%s 0 is not above 0; leave the flag out", name)
		}
	}
	s := &pb.QueueSpec{
		Consistency: q.consistency, Durability: q.durability, Replicas: int32(q.replicas), MinReplicas: int32(q.minReplicas),
		ConsumedRetention:   q.retention("consumed-retention", q.consumed, creates),
		UnconsumedRetention: q.retention("unconsumed-retention", q.unconsumed, creates),
		MaxMessage:          int64(q.maxMessage), Status: q.status, MaxBacklog: int64(q.maxBacklog),
	}
	if q.replicas > core.MaxReplicas || q.minReplicas > core.MaxReplicas {
		return nil, core.Errorf(core.CodeBadArgument, "replicas %d is not in 1 … %d", max(q.replicas, q.minReplicas), core.MaxReplicas)
	}
	return s, convert.QueueSpec(s).WithDefaults(core.MaxReplicas, 1).Validate()
}

// retention is nil when the flag was not given. For a new queue 0 is a value.
func (q *queueFlags) retention(flag string, d time.Duration, creates bool) *durationpb.Duration {
	if creates && d == 0 && q.set.Lookup(flag).Changed {
		return durationpb.New(0)
	}
	return convert.DurationToProto(d)
}

func (a *app) updateQueueCommand() *cobra.Command {
	var flags queueFlags
	cmd := &cobra.Command{
		Use: "queue PATH", Aliases: queueAliases, Short: "Change settings of a queue",
		Long:    "Change the settings of a queue that are named.\n\n" + pauseHelp,
		Example: "  columba update queue /demo/trips --status receive-only --max-message 4MiB",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
	}
	flags.register(cmd)
	flags.registerStatus(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		path, err := core.ParseAnyQueuePath(args[0])
		if err != nil {
			return err
		}
		spec, err := flags.spec(false)
		if err != nil {
			return err
		}
		if err := needsChange(cmd); err != nil {
			return err
		}
		spec.Path = path
		// The consistency is no field that changes: the server says why when it would.
		q, err := change(ctx, a, a.admin().UpdateQueue, &pb.UpdateQueueRequest{Spec: spec, Fields: changed(cmd, "consistency")})
		if err != nil {
			return err
		}
		if spec.GetReplicas() > 0 {
			a.noteFewStores(ctx, q)
		}
		return a.printer().object(queueFields(q))
	})
	return cmd
}

// changed are the fields whose flags were given, zero or not, but for some.
func changed(cmd *cobra.Command, but ...string) []string {
	var fields []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if cmd.InheritedFlags().Lookup(f.Name) == nil && !slices.Contains(but, f.Name) {
			fields = append(fields, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	return fields
}

// needsChange refuses an update that would change nothing.
func needsChange(cmd *cobra.Command) error {
	if len(changed(cmd)) == 0 {
		return core.Errorf(core.CodeBadArgument, "nothing to change; name a setting, see `%s --help`", cmd.CommandPath())
	}
	return nil
}

func (a *app) deleteQueueCommand() *cobra.Command {
	var sure consent
	cmd := &cobra.Command{
		Use: "queue PATH", Aliases: queueAliases, Short: "Delete a queue, its groups and its messages",
		Example: "  columba delete queue /demo/trips --dry-run\n  columba delete queue /demo/trips",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			path, err := core.ParseQueuePath(args[0])
			if err != nil {
				return err
			}
			unsure, err := sure.needed(a)
			if err != nil {
				return err
			}
			if sure.dryRun || unsure {
				if err := a.wouldDeleteQueue(ctx, path, &sure); err != nil || sure.dryRun {
					return err
				}
			}
			if _, err := change(ctx, a, a.admin().DeleteQueue, &pb.DeleteQueueRequest{Path: path}); err != nil {
				return err
			}
			a.say("queue %s is deleted", path)
			return nil
		}),
	}
	sure.bind(cmd, "only say what would be deleted")
	return cmd
}

// wouldDeleteQueue says what would go with a queue, or asks whether it shall.
func (a *app) wouldDeleteQueue(ctx context.Context, path string, sure *consent) error {
	id, err := a.queueID(path)(ctx)
	if err != nil {
		return err
	}
	groups, err := ask(ctx, a, a.admin().ListGroups, &pb.ListGroupsRequest{Queue: path})
	if err != nil {
		return err
	}
	n := plural(len(groups.GetGroups()), "group")
	if !sure.dryRun {
		gone := fmt.Sprintf("queue %s, its %s and all messages%s", path, n, a.backlogText(ctx, path, ""))
		return sure.askOf(ctx, a, gone, id, a.queueID(path))
	}
	return a.wouldLose(ctx, path, "", fmt.Sprintf("would delete queue %s, its %s and all messages; nothing was changed", path, n), "Depths of its groups:")
}

func (a *app) showQueueCommand() *cobra.Command {
	return &cobra.Command{
		Use: "queue PATH", Aliases: queueAliases, Short: "Show a queue's settings",
		Example: "  columba show queue /demo/trips -o json",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			path, err := core.ParseAnyQueuePath(args[0])
			if err != nil {
				return err
			}
			q, err := ask(ctx, a, a.admin().GetQueue, &pb.GetQueueRequest{Path: path})
			if err != nil {
				return err
			}
			return a.printer().object(queueFields(q))
		}),
	}
}

func (a *app) listQueuesCommand() *cobra.Command {
	var prefix, order string
	var all bool
	cmd := &cobra.Command{
		Use: "queues", Aliases: append([]string{"queue", "destinations"}, queueAliases...), Short: "List queues with the number of their messages",
		Long: "List queues. The counts are the sums over the groups of a queue, as the controller counted them in the last 15 seconds (-: not\n" +
			"counted). With --sort backlog or age only queues that store messages are listed.",
		Example: "  columba list queues --prefix /demo/\n  columba list queues --sort backlog\n  columba list queues --all",
		Args:    exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			if !slices.Contains(depthOrders, order) {
				return unknownOrder(order)
			}
			out, admin := a.fitted("CONSISTENCY", "REPLICAS", "PUBLISH_RATE", "STATUS", "DELAYED", "OLDEST_READY_MS", "IN_FLIGHT", "DEAD"), a.admin()
			missing := missingDepths{}
			err := a.pages(out, "queues", func(after string) (string, error) {
				page, err := ask(ctx, a, admin.ListQueues, &pb.ListQueuesRequest{Prefix: prefix, After: after, Depths: true, Sort: order, WithoutBuiltIn: !all})
				missing.add(page.GetUncountedQueues(), page.GetSilent())
				for _, q := range page.GetQueues() {
					if all || !builtIn(q.GetSpec().GetPath()) {
						out.item(listedQueue(q))
					}
				}
				return page.GetNext(), err
			})
			if err == nil {
				missing.say(a)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only queues whose path begins with this")
	cmd.Flags().StringVar(&order, "sort", "name", "name, backlog or age: the largest backlog, or the oldest message, comes first")
	suggest(cmd, "sort", depthOrders...)
	cmd.Flags().BoolVar(&all, "all", false, "also the queues that belong to groups, like their dead letter queues")
	return cmd
}

// builtIn reports whether a queue's path says that it belongs to a group.
func builtIn(path string) bool {
	_, err := core.ParseQueuePath(path)
	return err != nil
}

// pages prints a paged list: fetch prints the page after a token and returns the next token, "" at the end.
func (a *app) pages(out *printer, what string, fetch func(after string) (next string, err error)) error {
	return a.pagesOr(out, func() { a.say("no %s", what) }, fetch)
}

// pagesOr is pages that calls none if there is nothing to print.
func (a *app) pagesOr(out *printer, none func(), fetch func(after string) (next string, err error)) error {
	after := ""
	for {
		next, err := a.page(after, fetch)
		if err != nil {
			out.flush()
			return err
		}
		if out.err != nil {
			return out.err
		}
		if next == "" || next == after {
			break
		}
		after = next
	}
	if out.items == 0 {
		none()
	}
	return out.close()
}

// page fetches one page. A later page than the first is asked for again while --timeout lasts and no server can answer
// for now: what was printed is of no use without the rest.
func (a *app) page(after string, fetch func(after string) (next string, err error)) (next string, err error) {
	for until := time.Now().Add(a.timeout); ; {
		next, err = fetch(after)
		switch core.CodeOf(err) {
		case core.CodeUnavailable, core.CodeNoMajority, core.CodeDraining, core.CodeDeadline:
		default:
			return next, err
		}
		if after == "" || !time.Now().Add(retryEach).Before(until) {
			return next, err
		}
		<-time.After(retryEach)
	}
}

func optional(cmd *cobra.Command, name string, d time.Duration) *durationpb.Duration {
	if !cmd.Flags().Changed(name) {
		return nil
	}
	return durationpb.New(d)
}
