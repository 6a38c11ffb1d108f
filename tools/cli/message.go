package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (a *app) showMessageCommand() *cobra.Command {
	return &cobra.Command{
		Use: "message RECEIPT", Short: "Show where a message is stored, and its state in each group",
		Long: "Show a message by its receipt (extent:seq), which publish, peek and consume -o json print: where it is stored, its attributes,\n" +
			"and its state in each group of its queue: unread, ready, in_flight (with consumer, begin and end of the lock), delayed (with the due\n" +
			"time), blocked, dead_lettering, dead, before_start, cancelled, or settled. A settled message was acked, skipped, expired or dropped;\n" +
			"no record says which.",
		Example: "  columba show message 01890a5d-ac96-774b-bcce-b302099a8057:17",
		Args:    exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if _, err := core.ParseReceipt(args[0]); err != nil {
				return err
			}
			m, err := ask(ctx, a, a.admin().GetMessage, &pb.GetMessageRequest{Receipt: args[0]})
			if err != nil {
				return err
			}
			return a.showLife(m)
		}),
	}
}

// showLife prints the groups as a part of the object, or in a table below it.
func (a *app) showLife(m *pb.MessageInfo) error {
	fields := lifeFields(m)
	if a.format != formatTable {
		groups := make([]json.RawMessage, 0, len(m.GetGroups()))
		for _, g := range m.GetGroups() {
			groups = append(groups, encode(lifeInGroup(g)))
		}
		return a.printer().object(append(fields, field{name: "groups", value: groups}))
	}
	if err := a.printer().object(fields); err != nil || len(m.GetGroups()) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout)
	out := a.fitted("SINCE", "UNTIL", "LAST_FAILURE", "RETRY_RECEIPT", "DEAD_LETTER", "CONSUMER")
	for _, g := range m.GetGroups() {
		out.item(lifeInGroup(g))
		if why := g.GetDetail(); why != "" {
			a.say("group %s: %s", g.GetGroup(), why)
		}
	}
	return out.close()
}

func lifeFields(m *pb.MessageInfo) []field {
	fields := []field{
		{name: "receipt", value: m.GetReceipt()},
		{name: "queue", value: m.GetQueue()},
		{name: "stored", value: m.GetStored()},
		{name: "extent_state", value: m.GetExtentState()},
		{name: "stores", value: m.GetStores()},
		{name: "enqueued", value: instant(m.GetEnqueued())},
		{name: "id", value: m.GetMessage().GetId()},
		{name: "key", value: m.GetMessage().GetKey()},
		{name: "headers", value: headers(m.GetMessage().GetHeaders())},
		{name: "due", value: instant(m.GetMessage().GetDeliverAt())},
		{name: "expires", value: instant(m.GetMessage().GetExpireAt())},
		{name: "bytes", value: m.GetBytes()},
		{name: "detail", value: m.GetDetail()},
	}
	return append(fields, payloadField(m.GetMessage().GetPayload()))
}

// settledState is the state of a message that a group needs no more.
const settledState = "settled"

// lifeInGroup is where a message stands in a group, what tables show first.
func lifeInGroup(m *pb.Standing) []field {
	fields := []field{{name: "group", value: m.GetGroup()}}
	for _, f := range standingFields(m) {
		switch f.name {
		case "enqueued", "age_ms":
			continue
		case "attempts":
			if m.GetState() == settledState && m.GetAttempts() == 0 {
				f.value = nil // no record of its attempts is kept
			}
		case "last_error", "host", "session", "address", "connected", "owner":
			f.detail = true
		}
		fields = append(fields, f)
	}
	return append(fields, field{name: "dead_letter", value: m.GetDeadLetter()}, field{name: "retry_receipt", value: m.GetRetryReceipt()}, field{name: "detail", value: m.GetDetail(), detail: true})
}
