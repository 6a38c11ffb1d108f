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
		Long: "Sends a consumer group to another place in its queue: what it had consumed does not count any more. Consumers go on by themselves;\n" +
			"what they hold is delivered again if it lies behind that place, and settling it is refused as stale.",
		Example: "  columba seek /demo/trips billing --to earliest\n  columba seek /demo/trips billing --to -2h",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, group, err := groupName(args)
			if err != nil {
				return err
			}
			if to == "" {
				return core.Errorf(core.CodeBadArgument, "where to is missing; name it with --to: earliest, latest, a time like 2026-01-02T15:04:05Z or 2026-01-02, or a duration back like -2h or -7d")
			}
			start, err := core.ParseStart(to, time.Now())
			if err != nil {
				return err
			}
			if start.Mode == core.StartTime { // a duration back is from this clock
				to = start.At.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
			}
			if dryRun {
				if start.Mode == core.StartTime && start.At.After(time.Now()) { // the server would refuse it
					return core.Errorf(core.CodeBadArgument, "%s is in the future; use latest, or an earlier time", to)
				}
				a.say("would send group %s of %s to %s; nothing was changed", group, queue, to)
				return a.showGroup(ctx, queue, group)
			}
			g, err := change(ctx, a, a.admin().SeekGroup, &pb.SeekGroupRequest{Queue: queue, Group: group, To: to})
			if err != nil {
				return err
			}
			a.say("group %s of %s goes on at %s", group, queue, to)
			return a.printer().object(groupFields(g))
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "earliest, latest, a time like 2026-01-02T15:04:05Z or 2026-01-02, or a duration back like -2h or -7d")
	suggest(cmd, "to", "earliest", "latest")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show the group")
	return cmd
}
