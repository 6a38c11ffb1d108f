package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// watchInterval is how often --watch looks.
const watchInterval = time.Second

func (a *app) depthCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "depth PATH [GROUP]", Short: "Show how many messages wait, are in flight, delayed, parked and dead, per group",
		Long: "Show how many messages wait, are in flight, delayed, parked, blocked and dead, per group; the age of the oldest that is ready; how\n" +
			"many are acked and published per second, over the last ten; and in how long nothing would be left at these rates (nothing: it does\n" +
			"not get less). `columba why-stuck` names what holds a group up.",
		Example: "  columba depth /demo/trips\n  columba depth /demo/trips billing --watch -o json",
		Args:    between(1, 2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			req := &pb.GetDepthRequest{}
			var err error
			if len(args) == 2 {
				req.Queue, req.Group, err = groupName(args)
			} else {
				req.Queue, err = core.ParseAnyQueuePath(args[0])
			}
			if err != nil {
				return err
			}
			if watch {
				return a.watchDepth(ctx, req)
			}
			_, err = a.showDepth(ctx, req)
			return err
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show again every second until interrupted; --timeout is for each time")
	return cmd
}

// showDepth prints the depths and returns how many groups there are.
func (a *app) showDepth(ctx context.Context, req *pb.GetDepthRequest) (int, error) {
	out := a.printer()
	err := a.pages(out, "groups", func(string) (string, error) {
		depth, err := ask(ctx, a, a.admin().GetDepth, req)
		for _, d := range depth.GetGroups() {
			out.item(depthFields(d))
			if n := d.GetUnknownExtents(); n > 0 {
				a.say("group %s: %s could not be counted just now; there may be more", d.GetGroup(), plural(int64(n), "extent"))
			}
		}
		return "", err
	})
	return out.items, err
}

// watchDepth shows depths until ctx ends; on a terminal a table is drawn over the one before.
func (a *app) watchDepth(ctx context.Context, req *pb.GetDepthRequest) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	redraw := a.format == formatTable && isTerminal(a.stdout)
	for {
		groups, err := a.showDepth(ctx, req)
		if ctx.Err() != nil {
			return nil // interrupted: that is how a watch ends
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if redraw && groups > 0 {
			fmt.Fprintf(a.stdout, "\x1b[%dA\x1b[J", groups+1)
		}
	}
}
