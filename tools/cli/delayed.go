package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

func (a *app) listDelayedCommand() *cobra.Command {
	var list paging
	var id string
	cmd := &cobra.Command{
		Use: "delayed PATH [GROUP]", Short: "List delayed messages",
		Long: "List the delayed messages of a queue, with the time when each is due and where the delay comes from. Without GROUP: only those that were\n" +
			"published for later (source publish). Retries are not among them, because each group has its own. With GROUP also those that a consumer of the\n" +
			"group nacked (source retry), and those that an output host has read and the group's delay keeps back (source group). `columba depth` counts them all.",
		Example: "  columba list delayed /demo/trips\n  columba list delayed /demo/trips billing -o json",
		Args:    between(1, 2), ValidArgsFunction: a.completeGroups,
		RunE: a.run(func(ctx context.Context, args []string) error {
			req := &pb.ListDelayedRequest{Id: id}
			var err error
			if req.Queue, err = core.ParseAnyQueuePath(args[0]); err != nil {
				return err
			}
			if len(args) == 2 {
				if req.Group, err = core.ParseGroupName(args[1]); err != nil {
					return err
				}
			}
			out, admin := a.fitted("ID", "ERROR", "ATTEMPTS"), a.admin()
			err = list.print(a, out, noDelayed(req), func(after string, most int32) (string, error) {
				req.After, req.Limit = after, most
				page, err := ask(ctx, a, admin.ListDelayed, req)
				for _, m := range page.GetMessages() {
					out.item(delayedFields(m))
				}
				return page.GetNext(), err
			})
			if err == nil && req.Group == "" && a.format == formatTable {
				a.say("only messages that were published for later are listed; `columba list delayed %s GROUP` lists the retries of a group, too", req.Queue)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "only the message with this id")
	list.register(cmd, 0)
	return cmd
}

// noDelayed is what an empty list says after its "no": which delayed messages the list of a group leaves out.
func noDelayed(req *pb.ListDelayedRequest) string {
	if req.GetGroup() == "" {
		return "delayed messages"
	}
	return fmt.Sprintf("delayed messages; a message that was nacked a moment ago is listed after two seconds or so, and one that waits for the group's delay when an output host has read it: "+
		"`columba depth %[1]s %[2]s` counts all. A message on its way to the dead letter queue is not listed: `columba why-stuck %[1]s %[2]s` names it", req.GetQueue(), req.GetGroup())
}

func delayedFields(m *pb.DelayedMessage) []field {
	return []field{
		{name: "receipt", value: m.GetReceipt()},
		{name: "id", value: m.GetId()},
		{name: "due", value: instant(m.GetDue())},
		{name: "source", value: m.GetSource()},
		{name: "attempts", value: m.GetAttempts()},
		{name: "error", value: m.GetError()},
		{name: "reason", value: m.GetReason(), detail: true},
		{name: "origin", value: m.GetOrigin(), detail: true},
		{name: "enqueued", value: instant(m.GetEnqueued()), detail: true},
		{name: "delayed_since", value: instant(m.GetDelayedSince()), detail: true},
		{name: "last_consumer", value: m.GetLastConsumer(), detail: true},
		{name: "key", value: m.GetMessage().GetKey(), detail: true},
	}
}

func (a *app) cancelMessagesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel [PATH] RECEIPT…", Short: "Cancel delayed messages, or stop an operation",
		Long: "Cancel delayed messages, by their receipts. A message that was published for later is cancelled for every group that has not got it. A message\n" +
			"in the retry queue of a group is cancelled for that group. `columba list delayed` prints the receipts. With PATH the messages have to be in that queue;\n" +
			"the argument - reads the receipts from stdin, one per line. For each group the command says whether the message is cancelled, was delivered before,\n" +
			"or was due and may have been delivered. The exit code is 4 when it was too late for a group.",
		Example: "  columba cancel /demo/alarms 01890a5d-ac96-774b-bcce-b302099a8057:17\n" +
			"  columba list delayed /demo/alarms -o json | jq -r .receipt | columba cancel /demo/alarms -",
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
			return a.cancelMessages(ctx, path, receipts)
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

// cancelMessages takes messages back, and reports what came of it for each and each group.
func (a *app) cancelMessages(ctx context.Context, path string, receipts []string) error {
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
