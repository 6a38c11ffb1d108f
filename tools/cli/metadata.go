package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/node"
)

func (a *app) metadataCommand() *cobra.Command {
	return parent("metadata", "Move the metadata of a cluster", a.metadataCopyCommand())
}

func (a *app) metadataCopyCommand() *cobra.Command {
	var data, to string
	var undo bool
	cmd := &cobra.Command{
		Use: "copy", Short: "Copy embedded metadata to Cassandra, while the cluster is stopped",
		Long: "Copy the embedded metadata in the data directory of the controller to an empty keyspace of Cassandra, which has the\n" +
			"schema (`columba schema apply`). All processes of the cluster must be stopped. The command compares all rows, and then\n" +
			"renames DIR/metadata to DIR/metadata.moved: no server uses it any more. Until a server has started on the copy, --undo\n" +
			"takes it back.\n\n" +
			"While nodes are overloaded or away the command goes on more slowly. It ends when Cassandra has answered nothing for two\n" +
			"minutes. After that, and after any interruption, run it again: it goes on where it was. Where no terminal shows a bar, it\n" +
			"prints how far it is every ten seconds.",
		Example: "  columba metadata copy --data /var/lib/columba --to cassandra://10.0.0.1,10.0.0.2/columba\n" +
			"  columba metadata copy --data /var/lib/columba --to cassandra://10.0.0.1,10.0.0.2/columba --undo",
		Args: exactly(0),
	}
	cmd.Flags().StringVar(&data, "data", node.DefaultConfig().Data, "data `directory` of the process with the role controller")
	cmd.Flags().StringVar(&to, "to", "", "`URL` of the Cassandra cluster with its keyspace, like cassandra://HOST,HOST/KEYSPACE")
	cmd.Flags().BoolVar(&undo, "undo", false, "take the copy back: the embedded metadata are used again")
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		if to == "" {
			return core.Errorf(core.CodeBadArgument, "--to is missing; name the keyspace, like --to cassandra://10.0.0.1/columba")
		}
		log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		if undo {
			if err := node.UndoCopy(ctx, data, to, log); err != nil {
				return err
			}
			a.say("the embedded metadata in %s count again; before another copy into the keyspace drop it (DROP KEYSPACE in cqlsh), and run `columba schema apply` again", data)
			return nil
		}
		return a.copyMetadata(ctx, data, to, log)
	})
	return cmd
}

func (a *app) copyMetadata(ctx context.Context, data, to string, log *slog.Logger) error {
	shown := a.newCopyProgress()
	counts, err := node.CopyMetadata(ctx, data, to, log, shown.at)
	shown.finish()
	if err != nil {
		return err
	}
	out, rows := a.printer(), 0
	for _, c := range counts {
		rows += c.Rows
		out.item([]field{{name: "table", value: c.Table}, {name: "rows", value: c.Rows}})
	}
	if err := out.close(); err != nil {
		return err
	}
	a.say("%d rows are copied and the same; start all controllers with --metadata %s, and better also the frontends and output hosts", rows, to)
	return nil
}
