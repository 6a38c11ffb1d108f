package cli

import "github.com/spf13/cobra"

func (a *app) createCommand() *cobra.Command {
	cmd := parent("create", "Create queues and consumer groups", a.createQueueCommand(), a.createGroupCommand())
	cmd.Aliases = []string{"c", "cr"}
	return cmd
}

func (a *app) updateCommand() *cobra.Command {
	cmd := parent("update", "Change settings of a queue or a consumer group", a.updateQueueCommand(), a.updateGroupCommand())
	cmd.Aliases = []string{"u"}
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	cmd := parent("delete", "Delete a queue or a consumer group", a.deleteQueueCommand(), a.deleteGroupCommand())
	cmd.Aliases = []string{"d"}
	return cmd
}

func (a *app) showCommand() *cobra.Command {
	return parent("show", "Show one queue, group, extent, dead letter queue or operation",
		a.showQueueCommand(), a.showGroupCommand(), a.showExtentCommand(), a.showDLQCommand(), a.showOperationCommand())
}

func (a *app) listCommand() *cobra.Command {
	cmd := parent("list", "List queues, groups, extents, timers, hosts or operations",
		a.listQueuesCommand(), a.listGroupsCommand(), a.listExtentsCommand(), a.listTimersCommand(), a.listHostsCommand(), a.listOperationsCommand())
	cmd.Aliases = []string{"l", "ls"}
	return cmd
}
