package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (a *app) deleteOrphansCommand() *cobra.Command {
	var sure consent
	cmd := &cobra.Command{
		Use: "orphans", Short: "Delete extents on stores whose queues are not in the metadata",
		Long: "Delete extents on stores whose queues are not in the metadata. They are kept for seven days, because the metadata may have lost the queues:\n" +
			"if you restore a newer copy of the metadata, the extents belong to their queues again. This command deletes the extents now.",
		Example: "  columba delete orphans --dry-run\n  columba delete orphans",
		Args:    exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			unsure, err := sure.needed(a)
			if err != nil {
				return err
			}
			if unsure {
				would, err := ask(ctx, a, a.admin().DeleteOrphans, &pb.DeleteOrphansRequest{DryRun: true})
				if err != nil {
					return err
				}
				if err := sure.ask(ctx, a, fmt.Sprintf("the messages of %s of unknown queues", plural(int(would.GetCount()), "extent"))); err != nil {
					return err
				}
				if err := a.noMoreOrphans(ctx, would); err != nil {
					return err
				}
			}
			res, err := change(ctx, a, a.admin().DeleteOrphans, &pb.DeleteOrphansRequest{DryRun: sure.dryRun})
			if err != nil {
				return err
			}
			out := a.printer()
			for _, e := range res.GetExtents() {
				out.item([]field{
					{name: "extent", value: e.GetExtent()}, {name: "queue", value: e.GetQueue()}, {name: "stores", value: e.GetStores()}, {name: "since", value: instant(e.GetSince())},
				})
			}
			if silent := res.GetSilent(); len(silent) > 0 {
				a.say("%s and may know of more extents; run the command again when all do", doNotAnswer(silent))
			}
			switch n := plural(int(res.GetCount()), "extent"); {
			case res.GetCount() == 0:
				a.say("no extents of unknown queues")
			case sure.dryRun:
				a.say("would delete %s; nothing was changed", n)
			default:
				a.say("%s are being deleted; it takes a minute or two", n)
			}
			return out.close()
		}),
	}
	sure.bind(cmd, "only show them")
	return cmd
}

// noMoreOrphans fails if there are extents of unknown queues beside those that the user agreed to delete. Fewer are
// fine: the others belong to queues again, or are gone. Of more extents than an answer holds, the numbers are compared.
func (a *app) noMoreOrphans(ctx context.Context, agreed *pb.DeleteOrphansResponse) error {
	now, err := ask(ctx, a, a.admin().DeleteOrphans, &pb.DeleteOrphansRequest{DryRun: true})
	if err != nil {
		return err
	}
	more := now.GetCount() > agreed.GetCount()
	if int(agreed.GetCount()) == len(agreed.GetExtents()) {
		shown := make(map[string]bool, len(agreed.GetExtents()))
		for _, e := range agreed.GetExtents() {
			shown[e.GetExtent()] = true
		}
		more = more || slices.ContainsFunc(now.GetExtents(), func(e *pb.OrphanExtent) bool { return !shown[e.GetExtent()] })
	}
	if more {
		return core.Errorf(core.CodeConflict, "stores have shown other extents of unknown queues while the question stood; nothing was changed; see them with `columba delete orphans --dry-run`")
	}
	return nil
}
