package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// groupAliases are the words for a consumer group, the last ones of users who come from Cherami.
var groupAliases = []string{"g", "consumergroup", "cg"}

// groupFlags are the settings of a consumer group.
type groupFlags struct {
	cmd                           *cobra.Command
	start, maxDeliveries          string
	lockTimeout, delay, skipOlder time.Duration
	backoff, exhausted, status    string
	expired                       string
	breaker                       string
	noNackThrottle                bool
	maxDelayedRetries             int
	atMostOnce                    bool
}

func (g *groupFlags) register(cmd *cobra.Command) {
	g.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&g.start, "start", "", "where the group begins: earliest, latest (the default), a time like 2026-01-02T15:04:05Z or 2026-01-02, or a duration back like -2h or -7d")
	suggest(cmd, "start", "earliest", "latest")
	durationVar(f, &g.lockTimeout, "lock-timeout", 0, "no other consumer gets a delivered message for this long; a new group has 60s")
	f.StringVar(&g.maxDeliveries, "max-deliveries", "", "attempts before a message is exhausted: 1 … 1000, or unlimited; a new group has 10")
	durationVar(f, &g.delay, "delay", 0, "deliver messages this long after they were published")
	durationVar(f, &g.skipOlder, "skip-older", 0, "skip messages older than this")
	f.StringVar(&g.backoff, "backoff", "", "delay of failed messages: min,factor,max[,jitter] like 1s,2,1m, or none; a new group has none: they come back at once")
	f.StringVar(&g.exhausted, "exhausted", "", "where an exhausted message goes, which has failed --max-deliveries times or was rejected: dlq, drop, or block (it stays undelivered); a new group has dlq")
	suggest(cmd, "exhausted", "dlq", "drop", "block")
	f.StringVar(&g.expired, "expired", "", "where a message goes that expires before its delivery: drop or dlq; a new group has drop")
	suggest(cmd, "expired", "drop", "dlq")
	f.StringVar(&g.breaker, "breaker", "", "percentage of failed attempts that opens the breaker, 1 … 100, or off. While it is open, a few messages are delivered as probes, and failed attempts do not count; a new group has 100: it opens when nothing succeeds")
	f.IntVar(&g.maxDelayedRetries, "max-delayed-retries", 0, "most retries that the group holds, 100 … 100000000; at the limit new messages are delivered only as retries end; a new group has 1000000")
	f.BoolVar(&g.noNackThrottle, "no-nack-throttle", false, "switch off the nack throttle, which slows down a consumer that only nacks")
}

func (g *groupFlags) registerStatus(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.status, "status", "", "enabled, disabled, send-only or receive-only")
	suggest(cmd, "status", statuses...)
}

// spec is what was set for the group args[0] args[1], checked as far as it can be without the server.
func (g *groupFlags) spec(args []string) (*pb.GroupSpec, error) {
	s := &pb.GroupSpec{Start: g.start, Exhausted: g.exhausted, Expired: g.expired, Status: g.status, NoNackThrottle: g.noNackThrottle}
	if g.atMostOnce {
		s.Delivery = string(core.AtMostOnce)
	}
	var err error
	if s.Queue, s.Name, err = groupName(args); err != nil {
		return nil, err
	}
	if s.MaxDeliveries, err = parseDeliveries(g.maxDeliveries); err != nil {
		return nil, err
	}
	if s.Breaker, err = parseBreaker(g.breaker); err != nil {
		return nil, err
	}
	if g.cmd.Flags().Changed("lock-timeout") && g.lockTimeout == 0 {
		return nil, core.Errorf(core.CodeBadArgument, "lock-timeout 0 is not in %s … %s", core.MinLockTimeout, core.MaxLockTimeout)
	}
	if n := g.maxDelayedRetries; g.cmd.Flags().Changed("max-delayed-retries") && (n < core.MinMaxDelayedRetries || n > core.MaxMaxDelayedRetries) {
		return nil, core.Errorf(core.CodeBadArgument, "max-delayed-retries %d is not in %d … %d", n, core.MinMaxDelayedRetries, core.MaxMaxDelayedRetries)
	}
	s.MaxDelayedRetries = int32(g.maxDelayedRetries)
	s.LockTimeout = optional(g.cmd, "lock-timeout", g.lockTimeout)
	s.Delay = optional(g.cmd, "delay", g.delay)
	s.SkipOlder = optional(g.cmd, "skip-older", g.skipOlder)
	if g.backoff != "" && g.backoff != "none" {
		b, err := core.ParseBackoff(g.backoff)
		if err != nil {
			return nil, err
		}
		s.Backoff = &pb.Backoff{Min: durationpb.New(b.Min), Factor: b.Factor, Max: durationpb.New(b.Max), Jitter: b.Jitter}
	}
	checked, err := convert.GroupSpec(s, time.Now())
	if err == nil {
		err = checked.CheckChosen()
	}
	if err != nil {
		return nil, err
	}
	return s, checked.WithDefaults().Validate()
}

func parseDeliveries(s string) (int32, error) {
	switch s {
	case "":
		return 0, nil
	case "unlimited", "-1": // as tables and JSON show it
		return core.UnlimitedDeliveries, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > core.MaxMaxDeliveries {
		return 0, core.Errorf(core.CodeBadArgument, "max-deliveries %q is not in 1 … %d, nor unlimited", clip(s), core.MaxMaxDeliveries)
	}
	return int32(n), nil
}

func parseBreaker(s string) (int32, error) {
	switch s {
	case "":
		return 0, nil
	case "off", "-1": // as tables and JSON show it
		return core.BreakerOff, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err != nil || n < 1 || n > core.BreakerAlways {
		return 0, core.Errorf(core.CodeBadArgument, "breaker %q is not a percentage of 1 … %d, nor off", clip(s), core.BreakerAlways)
	}
	return int32(n), nil
}

// groupName checks PATH and GROUP.
func groupName(args []string) (queue, group string, err error) {
	if queue, err = core.ParseAnyQueuePath(args[0]); err != nil {
		return "", "", err
	}
	group, err = core.ParseGroupName(args[1])
	return queue, group, err
}

func (a *app) createGroupCommand() *cobra.Command {
	var flags groupFlags
	cmd := &cobra.Command{
		Use: "group PATH GROUP", Aliases: groupAliases, Short: "Create a consumer group and its dead letter queue",
		Example: "  columba create group /demo/trips billing --start earliest --lock-timeout 30s --max-deliveries 5 --backoff 1s,2,1m",
		Args:    exactly(2), ValidArgsFunction: a.completeQueues,
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&flags.atMostOnce, "at-most-once", false, "never deliver a message twice: it is settled before it is delivered, and lost when its consumer dies")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		spec, err := flags.spec(args)
		if err != nil {
			return err
		}
		g, err := change(ctx, a, a.admin().CreateGroup, &pb.CreateGroupRequest{Spec: spec})
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("start") {
			a.say("starts at %s: the group gets messages published from now on. Groups created with --start earliest also get the stored messages", g.GetSpec().GetStart())
		}
		a.sayNote(g)
		if a.format == formatTable {
			s := g.GetSpec()
			if s.GetDelivery() == string(core.AtMostOnce) {
				return a.made("group %s of %s is created: starts at %s, delivers at most once", s.GetName(), s.GetQueue(), s.GetStart())
			}
			return a.made("group %s of %s is created: starts at %s, lock timeout %s, %s", s.GetName(), s.GetQueue(), s.GetStart(), duration(s.GetLockTimeout()), deliveries(s.GetMaxDeliveries()))
		}
		return a.printer().object(groupFields(g))
	})
	return cmd
}

// made is the one line that says what a command has created; -o json has all of it.
func (a *app) made(format string, args ...any) error {
	_, err := fmt.Fprintln(a.stdout, printable(fmt.Sprintf(format, args...)))
	return err
}

func deliveries(most int32) string {
	switch most {
	case core.UnlimitedDeliveries:
		return "unlimited deliveries"
	case 1:
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", most)
}

func (a *app) updateGroupCommand() *cobra.Command {
	var flags groupFlags
	cmd := &cobra.Command{
		Use: "group PATH GROUP", Aliases: groupAliases, Short: "Change settings of a consumer group",
		Long:    "Change the settings of a consumer group that are named.\n\n" + pauseHelp,
		Example: "  columba update group /demo/trips billing --max-deliveries unlimited",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
	}
	flags.register(cmd)
	flags.registerStatus(cmd)
	cmd.Flags().BoolVar(&flags.atMostOnce, "at-most-once", false, "fixed when the group is created")
	for _, fixed := range []string{"start", "at-most-once"} {
		_ = cmd.Flags().MarkHidden(fixed) // known only to be refused with a reason
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		if cmd.Flags().Changed("start") {
			return core.Errorf(core.CodeBadArgument, "the start of a group is fixed when it is created; move the group with `columba seek`, or create another group with --start")
		}
		if cmd.Flags().Changed("at-most-once") {
			return core.Errorf(core.CodeBadArgument, "the delivery mode of a group is fixed when it is created; leave --at-most-once out, or create another group with it")
		}
		spec, err := flags.spec(args)
		if err != nil {
			return err
		}
		if err := needsChange(cmd); err != nil {
			return err
		}
		g, err := change(ctx, a, a.admin().UpdateGroup, &pb.UpdateGroupRequest{Spec: spec, Fields: changed(cmd)})
		if err != nil {
			return err
		}
		return a.printer().object(groupFields(g))
	})
	return cmd
}

func (a *app) deleteGroupCommand() *cobra.Command {
	var sure consent
	cmd := &cobra.Command{
		Use: "group PATH GROUP", Aliases: groupAliases, Short: "Delete a consumer group and its dead letters",
		Example: "  columba delete group /demo/trips billing --dry-run\n  columba delete group /demo/trips billing",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, group, err := groupName(args)
			if err != nil {
				return err
			}
			if sure.dryRun {
				return a.wouldLose(ctx, queue, group, fmt.Sprintf("would delete group %s of %s and its dead letters; nothing was changed", group, queue), "Its depth:")
			}
			unsure, err := sure.needed(a)
			if err != nil {
				return err
			}
			if unsure {
				id, err := a.groupID(queue, group)(ctx)
				if err != nil {
					return err
				}
				gone := fmt.Sprintf("group %s of %s, where it is in the queue and its dead letters%s", group, queue, a.backlogText(ctx, queue, group))
				if err := sure.askOf(ctx, a, gone, id, a.groupID(queue, group)); err != nil {
					return err
				}
			}
			if _, err := change(ctx, a, a.admin().DeleteGroup, &pb.DeleteGroupRequest{Queue: queue, Name: group}); err != nil {
				return err
			}
			a.say("group %s of %s is deleted", group, queue)
			return nil
		}),
	}
	sure.bind(cmd, "only say what would be deleted")
	return cmd
}

// startHelp keeps apart two fields that both name a place in the queue.
const startHelp = "start is where the group began when it was created, and does not change. last_seek is where the last `columba seek` sent it; the group\n" +
	"went on from there."

func (a *app) showGroupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "group PATH GROUP", Aliases: groupAliases, Short: "Show a consumer group's settings",
		Long:    "Show a consumer group's settings.\n\n" + startHelp,
		Example: "  columba show group /demo/trips billing",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, group, err := groupName(args)
			if err != nil {
				return err
			}
			return a.showGroup(ctx, queue, group)
		}),
	}
}

func (a *app) showGroup(ctx context.Context, queue, group string) error {
	g, err := ask(ctx, a, a.admin().GetGroup, &pb.GetGroupRequest{Queue: queue, Name: group})
	if err != nil {
		return err
	}
	return a.printer().object(groupFields(g))
}

func (a *app) listGroupsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "groups PATH", Aliases: append([]string{"group", "consumergroups"}, groupAliases...), Short: "List the consumer groups of a queue",
		Long:    "List the consumer groups of a queue, with their settings.\n\n" + startHelp,
		Example: "  columba list groups /demo/trips",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, err := core.ParseAnyQueuePath(args[0])
			if err != nil {
				return err
			}
			out := a.fitted("QUEUE", "CREATED", "EXHAUSTED", "LOCK_TIMEOUT", "LAST_SEEK", "MAX_DELIVERIES", "DELIVERY", "START")
			return a.pages(out, "groups", func(string) (string, error) {
				list, err := ask(ctx, a, a.admin().ListGroups, &pb.ListGroupsRequest{Queue: queue})
				for _, g := range list.GetGroups() {
					out.item(groupFields(g))
				}
				return "", err
			})
		}),
	}
}
