package cli

import "github.com/spf13/cobra"

func (a *app) createCommand() *cobra.Command {
	cmd := parent("create", "Create queues, consumer groups and limits of namespaces",
		a.createQueueCommand(), a.createGroupCommand(), a.createNamespaceCommand())
	cmd.Aliases = []string{"c", "cr"}
	return cmd
}

// pauseHelp is for those who look for a command that pauses.
const pauseHelp = "To pause a queue or a group, change its status. Messages wait for as long as retention keeps them; --status enabled lets it go on:\n" +
	"  columba update group PATH GROUP --status disabled   no deliveries to this group\n" +
	"  columba update queue PATH --status send-only        no deliveries to any group of the queue\n" +
	"  columba update queue PATH --status receive-only     no publishes"

func (a *app) updateCommand() *cobra.Command {
	cmd := parent("update", "Change settings of a queue, a consumer group or a namespace",
		a.updateQueueCommand(), a.updateGroupCommand(), a.updateNamespaceCommand())
	cmd.Aliases = []string{"u"}
	cmd.SuggestFor = []string{"pause", "resume"}
	cmd.Long = "Change settings of a queue, a consumer group or a namespace.\n\n" + pauseHelp
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	cmd := parent("delete", "Delete a queue, a consumer group, the limits of a namespace, or what is left of unknown queues",
		a.deleteQueueCommand(), a.deleteGroupCommand(), a.deleteNamespaceCommand(), a.deleteOrphansCommand())
	cmd.Aliases = []string{"d"}
	return cmd
}

func (a *app) showCommand() *cobra.Command {
	return parent("show", "Show one queue, group, namespace, extent, host, message, dead letter queue or operation",
		a.showQueueCommand(), a.showGroupCommand(), a.showNamespaceCommand(), a.showExtentCommand(), a.showHostCommand(), a.showMessageCommand(), a.showDLQCommand(), a.showOperationCommand())
}

func (a *app) listCommand() *cobra.Command {
	cmd := parent("list", "List queues, groups, namespaces, extents, delayed messages, hosts, operations or the audit",
		a.listQueuesCommand(), a.listGroupsCommand(), a.listNamespacesCommand(), a.listExtentsCommand(), a.listDelayedCommand(), a.listHostsCommand(),
		a.listOperationsCommand(), a.listAuditCommand())
	cmd.Aliases = []string{"l", "ls"}
	return cmd
}
