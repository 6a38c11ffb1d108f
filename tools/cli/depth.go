package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// watchInterval is how often --watch looks.
const watchInterval = time.Second

func (a *app) depthCommand() *cobra.Command {
	var watch bool
	var all allDepths
	cmd := &cobra.Command{
		Use: "depth [PATH [GROUP]]", Short: "Show how many messages are ready, in flight, delayed and dead, per group",
		Long: "Show how many messages are ready, in flight, delayed, blocked and dead, per group; the age of the oldest ready one; the\n" +
			"messages acked and published per second, over the last ten seconds; and the time until the group has caught up at these rates\n" +
			"(-: the backlog does not shrink). A delayed message waits for its time; -o json counts them by source: publish, retry or group.\n" +
			"A blocked message is exhausted, in a group with --exhausted block. The breaker of a group is open while nothing it delivers succeeds; then failed attempts do not count. On a narrow terminal the table leaves out columns; -o json has all. `columba why-stuck` names what holds a group up.\n\n" +
			"Without PATH: all groups of queues that store messages, the largest backlogs first, as the controller counted them in the last 15 seconds.",
		Example: "  columba depth /demo/trips\n  columba depth /demo/trips billing --watch -o json\n  columba depth --sort age --limit 10",
		Args:    between(0, 2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			req := &pb.GetDepthRequest{}
			var err error
			if len(args) == 0 {
				if watch {
					return a.watchDepth(ctx, func(ctx context.Context) (int, error) { return a.showAllDepths(ctx, all) })
				}
				_, err = a.showAllDepths(ctx, all)
				return err
			}
			if all != (allDepths{sort: defaultOrder}) {
				return core.Errorf(core.CodeBadArgument, "--sort, --prefix and --limit are for the list of all groups; leave out the queue")
			}
			if len(args) == 2 {
				req.Queue, req.Group, err = groupName(args)
			} else {
				req.Queue, err = core.ParseAnyQueuePath(args[0])
			}
			if err != nil {
				return err
			}
			if watch {
				return a.watchDepth(ctx, func(ctx context.Context) (int, error) { return a.showDepth(ctx, req) })
			}
			_, err = a.showDepth(ctx, req)
			return err
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show again every second until interrupted; --timeout is for each time")
	cmd.Flags().StringVar(&all.sort, "sort", defaultOrder, "of all groups: backlog, age or name; the largest backlog, or the oldest message, comes first")
	cmd.Flags().StringVar(&all.prefix, "prefix", "", "of all groups: only those of queues whose path begins with this")
	cmd.Flags().IntVar(&all.limit, "limit", 0, "of all groups: only the first ones; 0: all")
	suggest(cmd, "sort", depthOrders...)
	return cmd
}

// allDepths are the settings of a list of all groups.
type allDepths struct {
	sort, prefix string
	limit        int
}

// depthOrders are what --sort takes.
var depthOrders = []string{"backlog", "age", "name"}

func unknownOrder(order string) error {
	return core.Errorf(core.CodeBadArgument, "order %q is unknown; use name, backlog or age with --sort", clip(order))
}

const defaultOrder = "backlog"

// listPage is how many items of a list one call asks for.
const listPage = 1000

// showAllDepths prints the depths of all groups and returns how many lines they take below the names of the columns.
func (a *app) showAllDepths(ctx context.Context, all allDepths) (int, error) {
	if !slices.Contains(depthOrders, all.sort) {
		return 0, unknownOrder(all.sort)
	}
	if all.limit < 0 {
		return 0, core.Errorf(core.CodeBadArgument, "limit %d is below 0", all.limit)
	}
	out := a.fitted(narrowDepth...)
	unknown, missing := int64(0), missingDepths{}
	none := func() {
		if missing.queues == 0 && len(missing.silent) == 0 { // else it is not known that there are none
			a.say("no groups of queues that store messages")
		}
	}
	err := a.pagesOr(out, none, func(after string) (string, error) {
		req := &pb.ListDepthsRequest{Prefix: all.prefix, Sort: all.sort, After: after, Limit: listPage}
		if all.limit > 0 {
			req.Limit = int32(min(all.limit-out.items, listPage))
		}
		page, err := ask(ctx, a, a.admin().ListDepths, req)
		for _, d := range page.GetDepths() {
			out.item(listedDepth(d))
			unknown += int64(d.GetUnknownExtents())
		}
		missing.add(page.GetUncountedQueues(), page.GetSilent())
		if all.limit > 0 && out.items >= all.limit {
			return "", err
		}
		return page.GetNext(), err
	})
	if unknown > 0 && err == nil {
		a.say("%s could not be counted just now; there may be more messages", plural(unknown, "extent"))
	}
	if err == nil {
		missing.say(a)
	}
	return a.lines(out), err
}

// missingDepths is what a list of depths lacks.
type missingDepths struct {
	queues uint32
	silent []string // controllers
}

func (m *missingDepths) add(queues uint32, silent []string) {
	m.queues = max(m.queues, queues)
	for _, id := range silent {
		if !slices.Contains(m.silent, id) {
			m.silent = append(m.silent, id)
		}
	}
}

func (m *missingDepths) say(a *app) {
	if len(m.silent) > 0 {
		a.say("%s: queues may be missing; ask again in some seconds", doNotAnswer(m.silent))
	}
	if m.queues > 0 {
		a.say("no controller has counted %s just now; the list lacks them; ask again in some seconds", plural(int(m.queues), "queue"))
	}
}

// doNotAnswer says of controllers that they are silent.
func doNotAnswer(controllers []string) string {
	if len(controllers) == 1 {
		return "controller " + controllers[0] + " does not answer"
	}
	return "controllers " + strings.Join(controllers, ", ") + " do not answer"
}

// narrowDepth are the columns that a table of depths leaves out on a narrow terminal, the first one first. The queue
// goes only when all rows have the same.
var narrowDepth = []string{"PUBLISH_RATE", "ACK_RATE", "DRAIN_MS", "BREAKER_OPEN_MS", "QUEUE", "BLOCKED", "OLDEST_READY_MS", "DELAYED", "DEAD"}

// lines is how many lines of a terminal a table takes below the names of its columns.
func (a *app) lines(out *printer) int {
	if out.dropped > 0 && a.width(a.stderr) > 0 {
		return out.items + 1 // what says so
	}
	return out.items
}

// showDepth prints the depths and returns how many lines they take below the names of the columns.
func (a *app) showDepth(ctx context.Context, req *pb.GetDepthRequest) (int, error) {
	out := a.fitted(narrowDepth...)
	err := a.pages(out, "groups", func(string) (string, error) {
		depth, err := ask(ctx, a, a.admin().GetDepth, req)
		for _, d := range depth.GetGroups() {
			out.item(depthFields(d))
			a.sayUnknown(d)
		}
		return "", err
	})
	return a.lines(out), err
}

// watchDepth shows depths until ctx ends; on a terminal a table is drawn over the one before. show answers how many
// rows it printed. While a server cannot answer the watch says so and asks again.
func (a *app) watchDepth(ctx context.Context, show func(context.Context) (rows int, err error)) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	a.patience = 0 // it asks again by itself
	redraw := a.format == formatTable && a.width(a.stdout) > 0
	said := ""
	for first := true; ; first = false {
		rows, err := show(ctx)
		if ctx.Err() != nil {
			return nil // interrupted: that is how a watch ends
		}
		a.startTime = 0
		drawn := rows
		switch {
		case err == nil:
			said = ""
			if rows > 0 {
				drawn++ // the names of the columns
			}
		case !passing(err) || first && !errors.As(err, new(answeredError)):
			return err
		default:
			text := "no answer just now, asking again: " + firstLine(err.Error())
			if redraw {
				fmt.Fprintln(a.stdout, clipped(text, max(1, a.width(a.stdout)-1)))
				drawn++
			} else if text != said {
				a.say("%s", text)
			}
			said = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if redraw && drawn > 0 {
			fmt.Fprintf(a.stdout, "\x1b[%dA\x1b[J", drawn)
		}
	}
}

// passing reports whether a question that failed may be answered in a while.
func passing(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeDeadline, core.CodeDraining, core.CodeMoved, core.CodeIncomplete, core.CodeThrottled:
		return true
	}
	return false
}

// counted is a number of a depth, or nothing for a 0 while extents could not be counted: 0 would say that nothing is
// there.
func counted[T int64 | uint64](d *pb.Depth, n T) any {
	if n == 0 && d.GetUnknownExtents() > 0 {
		return nil
	}
	return n
}

// drain is the estimate, or nothing when a group does not get less, or the backlog is not known.
func drain(d *pb.Depth) any {
	if d.GetDrainMs() < 0 {
		return nil
	}
	return counted(d, d.GetDrainMs())
}
