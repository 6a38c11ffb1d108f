package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

var namespaceAliases = []string{"ns"}

// namespaceFlags are the limits of a namespace.
type namespaceFlags struct {
	queues, messages int64
	bytes, backlog   size
}

func (f *namespaceFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&f.queues, "max-queues", 0, "number of queues; 0: no limit")
	flags.Int64Var(&f.messages, "messages-per-second", 0, "published messages per second, all queues together; 0: no limit")
	flags.Var(&f.bytes, "bytes-per-second", "published bytes per second, all queues together, like 10MiB; 0: no limit")
	flags.Var(&f.backlog, "backlog-bytes", "unconsumed bytes, all queues together, counting the largest group backlog of each queue, like 10GiB; 0: no limit")
}

// spec is what was set, checked as far as it can be without the server.
func (f *namespaceFlags) spec(name string) (*pb.NamespaceSpec, error) {
	if _, err := core.ParseNamespace(name); err != nil {
		return nil, err
	}
	s := &pb.NamespaceSpec{
		Name: name, MaxQueues: f.queues, MessagesPerSecond: f.messages, BytesPerSecond: int64(f.bytes), BacklogBytes: int64(f.backlog),
	}
	return s, convert.NamespaceSpec(s).Validate()
}

func (a *app) createNamespaceCommand() *cobra.Command {
	var flags namespaceFlags
	cmd := &cobra.Command{
		Use: "namespace NAME", Aliases: namespaceAliases, Short: "Limit the queues of a namespace",
		Long: "Set limits for the namespace NAME, which has all queues whose path begins with NAME. A namespace has no limits by default. Publishers\n" +
			"over a limit of rate or backlog are told to wait; the command line and the Go client do so by themselves.",
		Example: "  columba create namespace /acme --max-queues 100 --messages-per-second 5000 --bytes-per-second 20MiB --backlog-bytes 50GiB",
		Args:    exactly(1),
	}
	flags.register(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		spec, err := flags.spec(args[0])
		if err != nil {
			return err
		}
		if len(changed(cmd)) == 0 {
			return core.Errorf(core.CodeBadArgument, "no limit is named, and without limits a namespace needs no record; see `%s --help`", cmd.CommandPath())
		}
		n, err := change(ctx, a, a.admin().CreateNamespace, &pb.CreateNamespaceRequest{Spec: spec})
		if err != nil {
			return err
		}
		if a.format == formatTable {
			return a.made("namespace %s is created; its limits: columba show namespace %s", n.GetSpec().GetName(), n.GetSpec().GetName())
		}
		return a.printer().object(namespaceFields(n))
	})
	return cmd
}

func (a *app) updateNamespaceCommand() *cobra.Command {
	var flags namespaceFlags
	cmd := &cobra.Command{
		Use: "namespace NAME", Aliases: namespaceAliases, Short: "Change the limits of a namespace",
		Example: "  columba update namespace /acme --messages-per-second 0   # no limit any more",
		Args:    exactly(1),
	}
	flags.register(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		spec, err := flags.spec(args[0])
		if err != nil {
			return err
		}
		if err := needsChange(cmd); err != nil {
			return err
		}
		n, err := change(ctx, a, a.admin().UpdateNamespace, &pb.UpdateNamespaceRequest{Spec: spec, Fields: changed(cmd)})
		if err != nil {
			return err
		}
		return a.printer().object(namespaceFields(n))
	})
	return cmd
}

func (a *app) showNamespaceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "namespace NAME", Aliases: namespaceAliases, Short: "Show the limits of a namespace and how many queues it has",
		Example: "  columba show namespace /acme -o json",
		Args:    exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			name, err := core.ParseNamespace(args[0])
			if err != nil {
				return err
			}
			n, err := ask(ctx, a, a.admin().GetNamespace, &pb.GetNamespaceRequest{Name: name})
			if err != nil {
				return err
			}
			return a.printer().object(append(namespaceFields(n), field{name: "queues", value: n.GetQueues()}))
		}),
	}
}

func (a *app) listNamespacesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "namespaces", Aliases: append([]string{"namespace"}, namespaceAliases...), Short: "List the namespaces with limits",
		Example: "  columba list namespaces",
		Args:    exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			out, admin := a.printer(), a.admin()
			return a.pages(out, "namespaces with limits", func(after string) (string, error) {
				page, err := ask(ctx, a, admin.ListNamespaces, &pb.ListNamespacesRequest{After: after})
				for _, n := range page.GetNamespaces() {
					out.item(namespaceFields(n))
				}
				return page.GetNext(), err
			})
		}),
	}
}

func (a *app) deleteNamespaceCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "namespace NAME", Aliases: namespaceAliases, Short: "Delete the limits of a namespace; its queues stay",
		Example: "  columba delete namespace /acme --dry-run",
		Args:    exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			name, err := core.ParseNamespace(args[0])
			if err != nil {
				return err
			}
			if dryRun {
				n, err := ask(ctx, a, a.admin().GetNamespace, &pb.GetNamespaceRequest{Name: name})
				if err != nil {
					return err
				}
				a.say("would delete the limits of namespace %s; nothing was changed", name)
				return a.printer().object(namespaceFields(n))
			}
			if _, err := change(ctx, a, a.admin().DeleteNamespace, &pb.DeleteNamespaceRequest{Name: name}); err != nil {
				return err
			}
			a.say("namespace %s has no limits any more; its queues are as they were", name)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be deleted")
	return cmd
}

func namespaceFields(n *pb.Namespace) []field {
	s := n.GetSpec()
	return []field{
		{name: "namespace", value: s.GetName()},
		{name: "max_queues", value: s.GetMaxQueues()},
		{name: "messages_per_second", value: s.GetMessagesPerSecond()},
		{name: "bytes_per_second", value: s.GetBytesPerSecond()},
		{name: "backlog_bytes", value: s.GetBacklogBytes()},
		{name: "created", value: instant(n.GetCreated())},
	}
}
