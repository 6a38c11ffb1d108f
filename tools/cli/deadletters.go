package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// defaultPeek is how many messages peek shows.
const defaultPeek = 10

func (a *app) dlqCommand() *cobra.Command {
	return parent("dlq", "Look into the dead letters of a consumer group, merge them back, purge them",
		a.dlqListCommand(), a.dlqPeekCommand(), a.dlqShowCommand(), a.mergeCommand("dlq ", "merge"), a.purgeCommand("dlq ", "purge"))
}

func (a *app) dlqListCommand() *cobra.Command {
	var id string
	var list paging
	cmd := &cobra.Command{
		Use: "list PATH GROUP", Aliases: []string{"ls", "l"}, Short: "List dead letters with their history, oldest first",
		Example: "  columba dlq list /demo/trips billing\n" +
			"  columba dlq list /demo/trips billing -o json | jq -r .reason\n" +
			"  columba merge-dlq /demo/trips billing --wait        # deliver them to their group once more",
		Args: exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			view := deadLetterFields
			if a.format == formatTable {
				view = listedDeadLetter
			}
			return a.deadLetters(ctx, args, id, list, view)
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "only the message with this id")
	list.register(cmd, 0)
	return cmd
}

func (a *app) dlqPeekCommand() *cobra.Command {
	var list paging
	cmd := &cobra.Command{
		Use: "peek PATH GROUP", Short: "Show the payloads of the first dead letters",
		Example: "  columba dlq peek /demo/trips billing --limit 3",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			return a.deadLetters(ctx, args, "", list, peekedDeadLetter)
		}),
	}
	list.register(cmd, defaultPeek)
	return cmd
}

// peekedDeadLetter is deadLetterFields with the payload in the table instead of the times.
func peekedDeadLetter(d *pb.DeadLetter) []field {
	fields := deadLetterFields(d)
	for i := range fields {
		switch fields[i].name {
		case "payload", "payload_base64":
			fields[i].detail = false
		case "first_enqueued", "dead_since", "last_consumer":
			fields[i].detail = true
		}
	}
	return fields
}

func (a *app) dlqShowCommand() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "show PATH GROUP --id ID", Short: "Show one dead letter",
		Example: "  columba dlq show /demo/trips billing --id 01890a5d-ac96-774b-bcce-b302099a8057",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, group, err := groupName(args)
			if err != nil {
				return err
			}
			if id == "" {
				return core.Errorf(core.CodeBadArgument, "the message's id is missing; name it with --id, see `columba dlq list %s %s`", queue, group)
			}
			if _, err := core.ParseID(id); err != nil {
				return err
			}
			page := &pb.ListDeadLettersResponse{}
			for next := true; next; next = page.GetNext() != "" && len(page.GetDeadLetters()) == 0 {
				page, err = ask(ctx, a, a.admin().ListDeadLetters, &pb.ListDeadLettersRequest{Queue: queue, Group: group, After: page.GetNext(), Id: id, Limit: 1})
				if err != nil {
					return err
				}
			}
			if len(page.GetDeadLetters()) == 0 {
				return core.Errorf(core.CodeNotFound, "message %s is not among the dead letters of group %s of %s; see `columba dlq list %s %s`", id, group, queue, queue, group)
			}
			return a.printer().object(deadLetterFields(page.GetDeadLetters()[0]))
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "the message's id")
	return cmd
}

// deadLetterLag says when a message that its group gave up is listed: a reject takes about a second, and a failed last
// attempt waits up to five seconds for the success of another message.
const deadLetterLag = "a message becomes a dead letter up to a second after a reject, up to five seconds after its last attempt failed"

// deadLetters lists dead letters of the group args[0] args[1].
func (a *app) deadLetters(ctx context.Context, args []string, id string, list paging, view func(*pb.DeadLetter) []field) error {
	queue, group, err := groupName(args)
	if err != nil {
		return err
	}
	if id != "" {
		if _, err := core.ParseID(id); err != nil {
			return err
		}
	}
	out, admin := a.fitted("RECEIPT", "FIRST_ENQUEUED", "LAST_CONSUMER", "DEAD_SINCE", "ERROR", "ATTEMPTS", "REASON"), a.admin()
	return list.print(a, out, "dead letters; "+deadLetterLag, func(after string, most int32) (string, error) {
		page, err := ask(ctx, a, admin.ListDeadLetters, &pb.ListDeadLettersRequest{Queue: queue, Group: group, After: after, Limit: most, Id: id})
		for _, d := range page.GetDeadLetters() {
			out.item(view(d))
		}
		return page.GetNext(), err
	})
}

func (a *app) showDLQCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dlq PATH GROUP", Short: "Show a group's dead letter queue",
		Example: "  columba show dlq /demo/trips billing",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, group, err := groupName(args)
			if err != nil {
				return err
			}
			g, err := ask(ctx, a, a.admin().GetGroup, &pb.GetGroupRequest{Queue: queue, Name: group})
			if err != nil {
				return err
			}
			depth, err := ask(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group})
			if err != nil {
				return err
			}
			d := theGroup(depth)
			a.sayUnknown(d)
			return a.printer().object([]field{
				{name: "queue", value: queue}, {name: "group", value: group}, {name: "dlq", value: g.GetDlqPath()},
				{name: "dead", value: counted(d, d.GetDead())}, {name: "max_deliveries", value: g.GetSpec().GetMaxDeliveries()},
				{name: "exhausted", value: g.GetSpec().GetExhausted()},
			})
		}),
	}
}

func (a *app) peekCommand() *cobra.Command {
	var list paging
	cmd := &cobra.Command{
		Use: "peek PATH", Short: "Show stored messages of a queue, oldest first, without consuming them",
		Example: "  columba peek /demo/trips --limit 3",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, err := core.ParseAnyQueuePath(args[0])
			if err != nil {
				return err
			}
			out, admin, view := a.fitted("HEADERS", "KEY", "ID", "ENQUEUED"), a.admin(), storedFields
			switch {
			case a.format == formatTable && out.width > 0:
				view = fittedStored
			case a.format == formatTable:
				view = listedStored
			}
			return list.print(a, out, "messages", func(after string, most int32) (string, error) {
				page, err := ask(ctx, a, admin.Peek, &pb.PeekRequest{Queue: queue, After: after, Limit: most})
				for _, m := range page.GetMessages() {
					out.item(view(m))
				}
				return page.GetNext(), err
			})
		}),
	}
	list.register(cmd, defaultPeek)
	return cmd
}
