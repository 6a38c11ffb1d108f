package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
)

func (a *app) whyStuckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why-stuck PATH GROUP", Short: "Name the message that holds a group up, its consumer, and the reason",
		Long: "Name the oldest message that a group has not settled, the consumer that has it, and the reason why it is not settled. A group that is not\n" +
			"stuck has the reason nothing_waits, in_flight, delayed, group_delay or ready. The words of reason are stable, for scripts.\n\n" +
			"consumer and since are set while a consumer has the message; host, session and address are its connection. until is the end of its lock, or\n" +
			"when a delayed message is due. extents counts the extents that have messages which the group has not settled. owner is the output host that\n" +
			"delivers the messages of this extent to the group (`columba list hosts`).",
		Example: "  columba why-stuck /demo/trips billing",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, group, err := groupName(args)
			if err != nil {
				return err
			}
			why, err := ask(ctx, a, a.admin().WhyStuck, &pb.WhyStuckRequest{Queue: queue, Group: group})
			if err != nil {
				return err
			}
			return a.printer().object(whyStuckFields(why, a.format != formatTable))
		}),
	}
}

// whyStuckFields leaves out what tells of a message when there is none, unless all is wanted.
func whyStuckFields(w *pb.WhyStuckResponse, whole bool) []field {
	fields := []field{
		{name: "queue", value: w.GetQueue()},
		{name: "group", value: w.GetGroup()},
		{name: "reason", value: w.GetReason()},
		{name: "text", value: w.GetText()},
		{name: "also", value: w.GetAlso()},
		{name: "detail", value: w.GetDetail()},
		{name: "extents", value: w.GetExtents()},
	}
	m := w.GetMessage()
	if m == nil && !whole {
		return fields
	}
	fields = append(fields, field{name: "receipt", value: m.GetReceipt()}, field{name: "id", value: m.GetId()})
	return append(fields, standingFields(m)...)
}

// standingFields are where a message stands in a group.
func standingFields(m *pb.Standing) []field {
	h := m.GetHolder()
	return []field{
		{name: "state", value: m.GetState()},
		{name: "enqueued", value: instant(m.GetEnqueued())},
		{name: "age_ms", value: m.GetAgeMs()},
		{name: "attempts", value: m.GetAttempts()},
		{name: "last_failure", value: m.GetLastFailure()},
		{name: "last_error", value: m.GetLastError()},
		{name: "consumer", value: h.GetConsumer()},
		{name: "host", value: h.GetHost()},
		{name: "session", value: h.GetSession()},
		{name: "address", value: h.GetAddress()},
		{name: "connected", value: instant(h.GetConnected())},
		{name: "since", value: instant(h.GetSince())},
		{name: "until", value: instant(m.GetUntil())},
		{name: "owner", value: m.GetOwner()},
	}
}
