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
	return parent("purge", "Delete all messages of a queue", a.purgeQueueCommand())
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
				return a.wouldPurge(ctx, path)
			}
			unsure, err := sure.needed(a)
			if err != nil {
				return err
			}
			if unsure {
				id, err := a.queueID(path)(ctx)
				if err != nil {
					return err
				}
				gone := fmt.Sprintf("the messages that queue %s has for its groups%s", path, a.purgedText(ctx, path))
				if err := sure.askOf(ctx, a, gone, id, a.queueID(path)); err != nil {
					return err
				}
			}
			return a.purgeQueue(ctx, path)
		}),
	}
	sure.bind(cmd, "only count the messages of each group")
	return cmd
}

// wouldPurge says how many messages a purge would take from each group, and prints the depths of the groups.
func (a *app) wouldPurge(ctx context.Context, path string) error {
	res, err := ask(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: path})
	if err != nil {
		return err
	}
	if len(res.GetGroups()) == 0 {
		a.say("would purge queue %s; nothing was changed. It has no groups, which count messages; `columba list extents %s` counts what is stored", path, path)
		return nil
	}
	return a.printBacklogs(res.GetGroups(), fmt.Sprintf("would purge queue %s%s; nothing was changed. Depths of its groups (dead letters stay):", path, messagesOf(res.GetGroups())))
}

// purgedText is backlogText without dead letters, which a purge leaves.
func (a *app) purgedText(ctx context.Context, path string) string {
	res, err := once(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: path})
	if err != nil {
		return ""
	}
	return messagesOf(res.GetGroups())
}

// purgeQueue purges until nothing is left: one operation takes a bounded part of a large queue, the oldest first. It
// ends if the queue is deleted and made anew meanwhile, and leaves the new one alone.
func (a *app) purgeQueue(ctx context.Context, path string) error {
	first := ""
	for {
		id, err := a.queueID(path)(ctx)
		if err != nil {
			return err
		}
		if first != "" && id != first {
			return core.Errorf(core.CodeConflict, "queue %s was deleted and made anew while it was purged; the messages of the new one stay", path)
		}
		first = id
		o, err := change(ctx, a, a.admin().StartOperation, &pb.StartOperationRequest{Id: core.NewID(time.Now()).String(), Kind: "purge", Queue: path})
		if err != nil {
			return err
		}
		if o, err = a.waitOperation(ctx, o); err != nil || o.GetError() == "" {
			return err
		}
	}
}
