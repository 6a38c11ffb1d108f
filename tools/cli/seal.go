package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// sealFlags are those of `columba seal`.
type sealFlags struct {
	force, quarantined bool
	store              string // all extents that wait for it
	sure               consent
}

func (a *app) sealCommand() *cobra.Command {
	var f sealFlags
	cmd := &cobra.Command{
		Use: "seal PATH EXTENT | --force --all-of-store STORE", Short: "Fix an extent's end for ever; the queue goes on in a new one",
		Long: "Fix an extent's end for ever; the queue goes on in a new one.\n" +
			"With --force --all-of-store STORE: declare that a store and its disk are gone for good, and fix the ends of all extents that stay sealing because of it.\n" +
			"Each ends at the longest of its other replicas. An extent with another replica that does not answer stays as it is; try again when its store is up.",
		Example: "  columba seal /demo/trips 01890a5d-ac96-774b-bcce-b302099a8057\n  columba seal --force --all-of-store host-b302099a8057 --dry-run",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.store != "" {
				return exactly(0)(cmd, args)
			}
			return exactly(2)(cmd, args)
		},
		ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			if f.quarantined && !f.force {
				return core.Errorf(core.CodeBadArgument, "--give-up-quarantined goes with --force")
			}
			if f.store != "" {
				return a.sealAllOf(ctx, &f)
			}
			return a.sealOne(ctx, &f, args[0], args[1])
		}),
	}
	cmd.Flags().BoolVar(&f.force, "force", false, "accept the end that the reachable replicas agree on, even if others may know more; of a sealed extent: skip, for good, the records that no store holds any more")
	cmd.Flags().BoolVar(&f.quarantined, "give-up-quarantined", false, "with --force, of a sealed extent: skip also the records that only damaged copies hold")
	cmd.Flags().StringVar(&f.store, "all-of-store", "", "with --force: declare this store gone for good, and seal all extents that wait for it")
	f.sure.bind(cmd, "only show the extents, and where they would end")
	return cmd
}

func (a *app) sealOne(ctx context.Context, f *sealFlags, path, extent string) error {
	queue, err := core.ParseAnyQueuePath(path)
	if err != nil {
		return err
	}
	if _, err := core.ParseID(extent); err != nil {
		return err
	}
	if !f.force { // that of a sealed one accepts that acknowledged messages are missing
		if err := a.canSeal(ctx, queue, extent); err != nil {
			return err
		}
	}
	if f.sure.dryRun {
		a.say("would seal this extent; nothing was changed")
		return a.showExtent(ctx, extent)
	}
	unsure := false
	if f.force {
		if unsure, err = f.sure.needed(a); err != nil {
			return err
		}
	}
	if unsure {
		if err := f.sure.ask(ctx, a, fmt.Sprintf("what only replicas of extent %s have that are away or damaged", extent)); err != nil {
			return err
		}
	}
	e, err := change(ctx, a, a.admin().SealExtent, &pb.SealExtentAdminRequest{Queue: queue, Extent: extent, Force: f.force, GiveUpQuarantined: f.quarantined})
	if err != nil {
		return err
	}
	return a.printer().object(extentFields(e))
}

// sealAllOf declares a store gone, and shows page by page what became of the extents that waited for it.
func (a *app) sealAllOf(ctx context.Context, f *sealFlags) error {
	if _, err := core.ParseHostID(f.store); err != nil {
		return err
	}
	if !f.force || f.quarantined {
		return core.Errorf(core.CodeBadArgument, "--all-of-store goes with --force, and not with --give-up-quarantined")
	}
	unsure, err := f.sure.needed(a)
	if err != nil {
		return err
	}
	if unsure {
		if err := f.sure.ask(ctx, a, fmt.Sprintf("store %s is declared gone: whatever only its disk has", f.store)); err != nil {
			return err
		}
	}
	out, count := a.printer(), make(map[string]int)
	err = a.pages(out, "extents stay sealing because of store "+f.store, func(after string) (string, error) {
		page, err := change(ctx, a, a.admin().SealAllOfStore, &pb.SealAllOfStoreRequest{Store: f.store, DryRun: f.sure.dryRun, After: after})
		for _, e := range page.GetExtents() {
			count[e.GetOutcome()]++
			out.item(undecidedFields(e))
		}
		return page.GetNext(), err
	})
	if err != nil {
		return err
	}
	switch {
	case len(count) == 0:
	case f.sure.dryRun:
		a.say("would seal %s; nothing was changed", plural(count["would_seal"], "extent"))
	case count["undecided"] > 0:
		a.say("sealed %s; %d stay sealing, for the reasons above", plural(count["sealed"], "extent"), count["undecided"])
		return errFailed
	default:
		a.say("sealed %s", plural(count["sealed"], "extent"))
	}
	return nil
}

func undecidedFields(e *pb.UndecidedExtent) []field {
	return []field{
		{name: "extent", value: e.GetExtent()}, {name: "queue", value: e.GetQueue()}, {name: "outcome", value: e.GetOutcome()},
		{name: "last_seq", value: e.GetLastSeq()}, {name: "lost", value: e.GetLost()}, {name: "since", value: instant(e.GetSince()), detail: true},
		{name: "away", value: e.GetAway()}, {name: "reason", value: e.GetReason()},
	}
}
