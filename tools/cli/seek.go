package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (a *app) seekCommand() *cobra.Command {
	var to string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "seek PATH GROUP --to WHERE", Short: "Send a consumer group back, or ahead, to another place in its queue",
		Long: "Send a consumer group to another place in its queue. The group forgets which messages it had consumed. Connected consumers go on at the\n" +
			"new place. Messages that they hold are delivered again if they lie after it; settling the old deliveries is refused as stale.\n\n" +
			"last_seek is the place of the last seek. start does not change: it is where the group began when it was created.",
		Example: "  columba seek /demo/trips billing --to -2h --dry-run\n  columba seek /demo/trips billing --to earliest",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, group, err := groupName(args)
			if err != nil {
				return err
			}
			if to == "" {
				return core.Errorf(core.CodeBadArgument, "the place to seek to is missing; name it with --to: earliest, latest, a time like 2026-01-02T15:04:05Z or 2026-01-02, or a duration back like -2h or -7d")
			}
			start, err := core.ParseStart(to, time.Now())
			if err != nil {
				return err
			}
			if start.Mode == core.StartTime { // a duration back is from this clock
				to = start.At.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
			}
			if dryRun {
				return a.previewSeek(ctx, &pb.SeekGroupRequest{Queue: queue, Group: group, To: to})
			}
			g, err := change(ctx, a, a.admin().SeekGroup, &pb.SeekGroupRequest{Queue: queue, Group: group, To: to})
			if err != nil {
				return err
			}
			a.say("group %s of %s goes on at %s (last_seek); start is where it began when it was created, and stays", group, queue, to)
			a.sayNote(g)
			return a.printer().object(groupFields(g))
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "earliest, latest, a time like 2026-01-02T15:04:05Z or 2026-01-02, or a duration back like -2h or -7d")
	suggest(cmd, "to", "earliest", "latest")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say how many messages the group would get, and how many it has waiting now")
	return cmd
}

// sayNote says what the place where a group begins does not concern.
func (a *app) sayNote(g *pb.Group) {
	if note := g.GetNote(); note != "" {
		a.say("%s", note)
	}
}

// previewSeek says what a seek would do.
func (a *app) previewSeek(ctx context.Context, req *pb.SeekGroupRequest) error {
	p, err := ask(ctx, a, a.admin().PreviewSeek, req)
	if err != nil {
		return err
	}
	a.say("would send group %s of %s to %s; nothing was changed. would_get counts cancelled and expired messages, too", req.GetGroup(), req.GetQueue(), req.GetTo())
	var waiting any
	if p.Waiting != nil {
		waiting = p.GetWaiting()
	}
	return a.printer().object([]field{
		{name: "queue", value: req.GetQueue()}, {name: "group", value: req.GetGroup()}, {name: "to", value: p.GetTo()},
		{name: "would_get", value: p.GetMessages()}, {name: "extents", value: p.GetExtents()}, {name: "waiting", value: waiting},
	})
}
