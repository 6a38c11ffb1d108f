package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

func (a *app) listTimersCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "timers PATH", Aliases: []string{"timer"}, Short: "List the messages of a queue that are not due yet",
		Long:    "List the messages of a queue that are not due yet, extent by extent, in each as they are due.",
		Example: "  columba list timers /demo/trips",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, err := core.ParseAnyQueuePath(args[0])
			if err != nil {
				return err
			}
			out, admin := a.fitted("ID"), a.admin()
			return a.limitedPages(out, "timers", limit, func(after string, most int32) (string, error) {
				page, err := ask(ctx, a, admin.Peek, &pb.PeekRequest{Queue: queue, After: after, Limit: most, Timers: true})
				for _, m := range page.GetMessages() {
					if limit == 0 || out.items < limit {
						out.item(timerFields(m))
					}
				}
				return page.GetNext(), err
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0 for all")
	return cmd
}

func timerFields(m *pb.StoredMessage) []field {
	return []field{
		{name: "receipt", value: m.GetReceipt()},
		{name: "id", value: m.GetMessage().GetId()},
		{name: "due", value: instant(m.GetMessage().GetDeliverAt())},
		{name: "enqueued", value: instant(m.GetEnqueued()), detail: true},
		{name: "key", value: m.GetMessage().GetKey(), detail: true},
	}
}

func (a *app) cancelTimersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel [PATH] RECEIPT…", Short: "Take messages back that wait for their time, or stop an operation",
		Long: "Take messages back that were published for later, by their receipts: no group gets them that has not got them. Or messages that a group\n" +
			"has parked, by the receipts of `columba list parked`: they do not come back. With a PATH they have to be of that queue; the argument -\n" +
			"reads the receipts from stdin, one per line. For each group it is said whether the message is cancelled, was delivered before, or was\n" +
			"due and may have been. The exit code is 4 when it was too late for a group.",
		Example: "  columba cancel /demo/alarms 01890a5d-ac96-774b-bcce-b302099a8057:17\n" +
			"  columba list parked /demo/alarms phone -o json | jq -r .receipt | columba cancel /demo/alarms -",
		Args: needsReceipts, ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			path := ""
			if strings.HasPrefix(args[0], "/") {
				var err error
				if path, err = core.ParseAnyQueuePath(args[0]); err != nil {
					return err
				}
				args = args[1:]
			}
			receipts, err := a.tokens(args)
			if err != nil {
				return err
			}
			if len(receipts) == 0 {
				a.say("stdin has no receipts; nothing was cancelled")
				return nil
			}
			for _, text := range receipts {
				if _, err := core.ParseReceipt(text); err != nil {
					return err
				}
			}
			return a.cancelTimers(ctx, path, receipts)
		}),
	}
}

func needsReceipts(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) == 1 && strings.HasPrefix(args[0], "/") {
		return core.Errorf(core.CodeBadArgument, "a receipt is missing; see `%s --help`", cmd.CommandPath())
	}
	return nil
}

// cancelChunk is how many messages one request cancels.
const cancelChunk = 100

// cancelTimers takes messages back, and reports what came of it for each and each group.
func (a *app) cancelTimers(ctx context.Context, path string, receipts []string) error {
	out, api := a.printer(), a.messages()
	var last error
	failed, late := 0, 0
	for first := 0; first < len(receipts); first += cancelChunk {
		res, err := change(ctx, a, api.Cancel, &pb.CancelRequest{Queue: path, Receipts: receipts[first:min(first+cancelChunk, len(receipts))]})
		if err != nil {
			return err
		}
		for _, r := range res.GetResults() {
			if r.GetError() != nil {
				failed++
				if last = convert.ErrorFromProto(r.GetError()); len(receipts) > 1 {
					a.complain("message "+r.GetReceipt(), last)
				}
				continue
			}
			if len(r.GetGroups()) == 0 {
				out.item(cancelFields(r.GetReceipt(), "", string(core.CancelDone)))
			}
			kept := 0
			for _, g := range r.GetGroups() {
				out.item(cancelFields(r.GetReceipt(), g.GetGroup(), g.GetOutcome()))
				if g.GetOutcome() != string(core.CancelDone) {
					kept = 1
				}
			}
			late += kept
		}
	}
	if err := out.close(); err != nil {
		return err
	}
	switch {
	case failed == 1 && len(receipts) == 1:
		return last
	case failed > 0:
		a.say("%d of %d messages could not be cancelled", failed, len(receipts))
		return errFailed
	case late > 0:
		return core.Errorf(core.CodeConflict, "it was too late for some groups of %d of %d messages; see above", late, len(receipts))
	}
	return nil
}

func cancelFields(receipt, group, outcome string) []field {
	return []field{{name: "receipt", value: receipt}, {name: "group", value: group}, {name: "outcome", value: outcome}}
}

func (a *app) listParkedCommand() *cobra.Command {
	var limit int
	var id string
	cmd := &cobra.Command{
		Use: "parked PATH GROUP", Short: "List the messages that wait in a group's retry queue",
		Long: "List the parked messages of a group: a consumer has sent them back with a delay above 30 s, and they wait in the group's retry queue.\n" +
			"They are in the order in which they were parked. columba depth counts messages that wait for up to 30 s as delayed.",
		Example: "  columba list parked /demo/trips billing",
		Args:    exactly(2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, err := core.ParseAnyQueuePath(args[0])
			if err != nil {
				return err
			}
			if _, err := core.ParseGroupName(args[1]); err != nil {
				return err
			}
			out, admin := a.fitted("ID", "ERROR", "ATTEMPTS"), a.admin()
			return a.limitedPages(out, "parked messages; a message that was sent back a moment ago is listed after two seconds or so", limit, func(after string, most int32) (string, error) {
				page, err := ask(ctx, a, admin.ListParked, &pb.ListParkedRequest{Queue: queue, Group: args[1], After: after, Limit: most, Id: id})
				for _, m := range page.GetMessages() {
					if limit == 0 || out.items < limit {
						out.item(parkedFields(m))
					}
				}
				return page.GetNext(), err
			})
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "only the message with this id")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0 for all")
	return cmd
}

func parkedFields(m *pb.ParkedMessage) []field {
	return []field{
		{name: "receipt", value: m.GetReceipt()},
		{name: "id", value: m.GetId()},
		{name: "until", value: instant(m.GetUntil())},
		{name: "attempts", value: m.GetAttempts()},
		{name: "error", value: m.GetError()},
		{name: "reason", value: m.GetReason(), detail: true},
		{name: "origin", value: m.GetOrigin(), detail: true},
		{name: "first_enqueued", value: instant(m.GetFirstEnqueued()), detail: true},
		{name: "parked_since", value: instant(m.GetParkedSince()), detail: true},
		{name: "last_consumer", value: m.GetLastConsumer(), detail: true},
		{name: "key", value: m.GetMessage().GetKey(), detail: true},
	}
}
