package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// operationPoll is how often a command that waits for an operation looks.
const operationPoll = 500 * time.Millisecond

// mergeCommand is `columba merge-dlq`, and under parent `dlq` its `merge`.
func (a *app) mergeCommand(parent, name string, aliases ...string) *cobra.Command {
	var rate uint32
	return a.operationCommand(&cobra.Command{
		Use: name + " PATH GROUP", Aliases: aliases, Short: "Deliver dead letters, all or a selection, to their group once more (a redrive)",
		Example: "  columba " + parent + name + " /demo/trips billing --rate 100 --wait\n" +
			"  columba " + parent + name + " /demo/trips billing --reason 'no such trip' --newer-than 2h",
	}, "merge", &rate)
}

// purgeCommand is `columba purge-dlq`, and under parent `dlq` its `purge`.
func (a *app) purgeCommand(parent, name string, aliases ...string) *cobra.Command {
	return a.operationCommand(&cobra.Command{
		Use: name + " PATH GROUP", Aliases: aliases, Short: "Delete dead letters of a group, all or a selection",
		Example: "  columba " + parent + name + " /demo/trips billing --older-than 72h --dry-run\n" +
			"  columba " + parent + name + " /demo/trips billing --wait",
	}, "purge", new(uint32))
}

// operationCommand makes a command that starts an operation.
func (a *app) operationCommand(cmd *cobra.Command, kind string, rate *uint32) *cobra.Command {
	var wait bool
	var sure consent
	var which selectionFlags
	cmd.Args, cmd.ValidArgsFunction = exactly(2), a.completeGroups
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		queue, group, err := groupName(args)
		if err != nil {
			return err
		}
		selection, err := which.selection(time.Now())
		if err != nil {
			return err
		}
		if sure.dryRun && selection != nil {
			return a.countSelected(ctx, kind, queue, group, convert.Selection(selection))
		}
		if sure.dryRun {
			depth, err := ask(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group})
			if err != nil {
				return err
			}
			d := theGroup(depth)
			a.say("would %s %s%d dead letters of group %s of %s; nothing was changed", kind, atLeast(d), d.GetDead(), group, queue)
			return a.printDryRun(kind, queue, group, d.GetDead(), d.GetDead())
		}
		unsure := false
		if kind == "purge" {
			if unsure, err = sure.needed(a); err != nil {
				return err
			}
		}
		if unsure {
			if err := a.surePurge(ctx, &sure, queue, group, selection != nil); err != nil {
				return err
			}
		}
		o, err := change(ctx, a, a.admin().StartOperation, &pb.StartOperationRequest{
			Id: core.NewID(time.Now()).String(), Kind: kind, Queue: queue, Group: group, Rate: *rate, Selection: selection,
		})
		if err != nil {
			return err
		}
		if wait {
			_, err := a.waitOperation(ctx, o)
			return err
		}
		if o.GetState() == "running" {
			a.say("operation %s runs; see how it goes with `columba show operation %s --wait`", o.GetId(), o.GetId())
		}
		return a.printer().object(operationFields(o))
	})
	switch kind {
	case "merge":
		cmd.Flags().Uint32Var(rate, "rate", 0, "at most this many messages per second; 0: no limit")
		cmd.Flags().BoolVar(&sure.dryRun, "dry-run", false, "only say how many dead letters there are, and how many of them would be merged")
	case "purge":
		sure.bind(cmd, "only say how many dead letters there are, and how many of them would be removed")
	}
	which.bind(cmd.Flags())
	cmd.Flags().BoolVar(&wait, "wait", false, "show the progress until it has ended, however long; an interrupt leaves it running")
	return cmd
}

// surePurge has the user agree to purging the dead letters of a group, or some.
func (a *app) surePurge(ctx context.Context, sure *consent, queue, group string, some bool) error {
	id, err := a.groupID(queue, group)(ctx)
	if err != nil {
		return err
	}
	which := "the dead letters"
	if some {
		which = "those dead letters"
	}
	gone := fmt.Sprintf("%s of group %s of %s", which, group, queue)
	// The question is asked all the same while they cannot be counted.
	if res, err := once(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group}); err == nil {
		d := theGroup(res)
		dead := fmt.Sprintf("%s%d", atLeast(d), d.GetDead())
		if gone += " (" + dead + ")"; some {
			gone = fmt.Sprintf("%s of group %s of %s (out of %s)", which, group, queue, dead)
		}
	}
	return sure.askOf(ctx, a, gone, id, a.groupID(queue, group))
}

// waitOperation shows an operation's progress until it has ended, and answers it.
func (a *app) waitOperation(ctx context.Context, o *pb.Operation) (*pb.Operation, error) {
	tick := time.NewTicker(operationPoll)
	defer tick.Stop()
	var bar *progress
	said, shown := "", uint64(0)
	for o.GetState() == "running" {
		if bar == nil && o.GetTotal() > 0 {
			bar = a.progress(o.GetKind(), int(o.GetTotal()))
			defer bar.finish()
		}
		if through := max(o.GetDone(), o.GetScanned()); bar != nil && through > shown {
			bar.add(int(through - shown))
			shown = through
		}
		if why := o.GetError(); why != "" && why != said {
			said = why
			a.say("operation %s waits: %s", o.GetId(), why)
		}
		select {
		case <-ctx.Done():
			a.say("operation %s goes on; stop it with `columba cancel operation %s`", o.GetId(), o.GetId())
			return o, ctx.Err()
		case <-tick.C:
		}
		now, err := ask(ctx, a, a.admin().GetOperation, &pb.GetOperationRequest{Id: o.GetId()})
		switch {
		case err == nil:
			o = now
		case core.CodeOf(err).Class() == core.ClassFatal:
			return o, err
		}
	}
	if bar != nil {
		bar.add(int(max(o.GetDone(), o.GetScanned(), shown) - shown))
		bar.finish()
	}
	if err := a.printer().object(operationFields(o)); err != nil {
		return o, err
	}
	switch o.GetState() {
	case "failed":
		return o, core.Errorf(core.CodeInternal, "operation %s failed: %s", o.GetId(), o.GetError())
	case "cancelled":
		return o, core.Errorf(core.CodeConflict, "operation %s was cancelled after %d of %d messages", o.GetId(), o.GetDone(), o.GetTotal())
	}
	if why := o.GetError(); why != "" && why != said {
		a.say("operation %s is done, but: %s", o.GetId(), why)
	} else if o.GetGroup() != "" && o.GetDone() == 0 {
		a.say("note: the operation found no %sdead letters; %s: run the command again when `columba dlq list %s %s` shows it",
			ofSelection(o), deadLetterLag, o.GetQueue(), o.GetGroup())
	}
	return o, nil
}

// ofSelection is the attribute of the dead letters that an operation looks for.
func ofSelection(o *pb.Operation) string {
	if o.GetSelection() != nil {
		return "such "
	}
	return ""
}

func (a *app) listOperationsCommand() *cobra.Command {
	var ended bool
	cmd := &cobra.Command{
		Use: "operations", Aliases: []string{"operation"}, Short: "List merges and purges that run",
		Example: "  columba list operations --all -o json",
		Args:    exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			out := a.fitted("CREATED", "KIND", "TOTAL", "GROUP", "QUEUE")
			return a.pages(out, "operations", func(string) (string, error) {
				list, err := ask(ctx, a, a.admin().ListOperations, &pb.ListOperationsRequest{Ended: ended})
				for _, o := range list.GetOperations() {
					out.item(operationFields(o))
				}
				return "", err
			})
		}),
	}
	cmd.Flags().BoolVar(&ended, "all", false, "also those that ended within the last seven days")
	return cmd
}

func (a *app) showOperationCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "operation ID", Short: "Show a merge or a purge",
		Example: "  columba show operation 01890a5d-ac96-774b-bcce-b302099a8057 --wait",
		Args:    exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if _, err := core.ParseID(args[0]); err != nil {
				return err
			}
			o, err := ask(ctx, a, a.admin().GetOperation, &pb.GetOperationRequest{Id: args[0]})
			if err != nil {
				return err
			}
			if wait {
				_, err := a.waitOperation(ctx, o)
				return err
			}
			return a.printer().object(operationFields(o))
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "show the progress until it has ended, however long")
	return cmd
}

func (a *app) cancelCommand() *cobra.Command {
	cmd := a.cancelMessagesCommand()
	cmd.AddCommand(a.cancelOperationCommand())
	return cmd
}

func (a *app) cancelOperationCommand() *cobra.Command {
	return &cobra.Command{
		Use: "operation ID", Short: "Stop a merge or a purge; messages that it has moved or deleted stay so",
		Example: "  columba cancel operation 01890a5d-ac96-774b-bcce-b302099a8057",
		Args:    exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if _, err := core.ParseID(args[0]); err != nil {
				return err
			}
			o, err := change(ctx, a, a.admin().CancelOperation, &pb.CancelOperationRequest{Id: args[0]})
			if err != nil {
				return err
			}
			if o.GetState() != "cancelled" {
				a.say("it had ended before: nothing was stopped")
			}
			return a.printer().object(operationFields(o))
		}),
	}
}

func operationFields(o *pb.Operation) []field {
	fields := []field{
		{name: "operation", value: o.GetId()},
		{name: "kind", value: o.GetKind()},
		{name: "queue", value: o.GetQueue()},
		{name: "group", value: o.GetGroup()},
		{name: "state", value: o.GetState()},
		{name: "done", value: o.GetDone()},
		{name: "total", value: o.GetTotal()},
		{name: "rate", value: o.GetRate(), detail: true},
		{name: "error", value: o.GetError(), detail: true},
		{name: "who", value: o.GetWho(), detail: true},
		{name: "created", value: instant(o.GetCreated())},
		{name: "changed", value: instant(o.GetChanged()), detail: true},
	}
	if o.GetSelection() != nil {
		fields = append(fields,
			field{name: "selection", value: selectionText(o.GetSelection()), detail: true},
			field{name: "scanned", value: o.GetScanned(), detail: true}, field{name: "selected", value: o.GetSelected(), detail: true})
	}
	return fields
}
