package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (a *app) purgeQueuesCommand() *cobra.Command {
	return parent("purge", "Take all messages out of a queue", a.purgeQueueCommand())
}

func (a *app) purgeQueueCommand() *cobra.Command {
	var sure consent
	cmd := &cobra.Command{
		Use: "queue PATH", Aliases: queueAliases, Short: "Delete every message that a queue has now, for all groups and for good",
		Long: "Delete every message that is stored when the purge begins, for all groups, and free its space. Messages published after the command has ended\n" +
			"stay; messages published while it runs may be deleted as well. Dead letters stay: `columba purge-dlq` deletes those.",
		Example: "  columba purge queue /demo/trips --dry-run\n  columba purge queue /demo/trips",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			path, err := core.ParseQueuePath(args[0])
			if err != nil {
				return err
			}
			if sure.dryRun {
				return a.wouldLose(ctx, path, "", fmt.Sprintf("would purge queue %s; nothing was changed", path), "What its groups have before them:")
			}
			unsure, err := sure.needed(a)
			if err != nil {
				return err
			}
			if unsure {
				if _, err := ask(ctx, a, a.admin().GetQueue, &pb.GetQueueRequest{Path: path}); err != nil {
					return err
				}
				if err := sure.ask(ctx, a, fmt.Sprintf("the messages that queue %s has for its groups%s", path, a.backlogText(ctx, path, ""))); err != nil {
					return err
				}
			}
			return a.purgeQueue(ctx, path)
		}),
	}
	sure.bind(cmd, "only say what the groups have before them")
	return cmd
}

// purgeQueue purges until nothing is left: one operation takes a bounded part of a large queue, the oldest first.
func (a *app) purgeQueue(ctx context.Context, path string) error {
	for {
		o, err := change(ctx, a, a.admin().StartOperation, &pb.StartOperationRequest{Id: core.NewID(time.Now()).String(), Kind: "purge", Queue: path})
		if err != nil {
			return err
		}
		if o, err = a.waitOperation(ctx, o); err != nil || o.GetError() == "" {
			return err
		}
	}
}
