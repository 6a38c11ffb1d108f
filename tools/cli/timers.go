package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (a *app) listTimersCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "timers PATH", Aliases: []string{"timer"}, Short: "List the messages of a queue that are not due yet",
		Long:    "List the messages of a queue that are not due yet, in the order in which they are stored.",
		Example: "  columba list timers /demo/trips",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, err := core.ParseAnyQueuePath(args[0])
			if err != nil {
				return err
			}
			out, admin := a.printer(), a.admin()
			return a.limitedPages(out, "timers", limit, func(after string, most int32) (string, error) {
				page, err := ask(ctx, a, admin.Peek, &pb.PeekRequest{Queue: queue, After: after, Limit: most, Timers: true})
				for _, m := range page.GetMessages() {
					if limit == 0 || out.items < limit {
						out.item(timerFields(m))
					}
				}
				return page.GetNext(), err
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0 for all")
	return cmd
}

func timerFields(m *pb.StoredMessage) []field {
	return []field{
		{name: "receipt", value: m.GetReceipt()},
		{name: "id", value: m.GetMessage().GetId()},
		{name: "due", value: instant(m.GetMessage().GetDeliverAt())},
		{name: "enqueued", value: instant(m.GetEnqueued()), detail: true},
		{name: "key", value: m.GetMessage().GetKey(), detail: true},
	}
}
