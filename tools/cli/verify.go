package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (a *app) verifyCommand() *cobra.Command {
	return parent("verify", "Have stores read their copies of an extent, and say whether they are whole", a.verifyExtentCommand())
}

func (a *app) verifyExtentCommand() *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use: "extent EXTENT", Short: "Have stores read every byte of an extent, and impose or lift their quarantine",
		Long: "Have the stores of an extent read every byte of their replicas. A store quarantines a replica that is damaged, and lifts the quarantine of one whose checksums all hold.\n" +
			"OUTCOME is sound, lifted (it was quarantined until now), damaged, absent (the store has no replica) or unanswered.\n" +
			"The exit code is 1 unless every replica is sound or lifted. A large extent on a slow disk needs a longer --timeout, 5 minutes at most.",
		Example: "  columba verify extent 01890a5d-ac96-774b-bcce-b302099a8057\n" +
			"  columba verify extent 01890a5d-ac96-774b-bcce-b302099a8057 --store host-b302099a8057 --timeout 5m -o json",
		Args: exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if _, err := core.ParseID(args[0]); err != nil {
				return err
			}
			if store != "" {
				if _, err := core.ParseHostID(store); err != nil {
					return err
				}
			}
			return a.verifyExtent(ctx, args[0], store)
		}),
	}
	cmd.Flags().StringVar(&store, "store", "", "only the replica on this store")
	return cmd
}

func (a *app) verifyExtent(ctx context.Context, extent, store string) error {
	out, bad, all := a.printer(), 0, 0
	err := a.pages(out, "replicas", func(string) (string, error) {
		answer, err := ask(ctx, a, a.admin().VerifyExtent, &pb.VerifyExtentRequest{Extent: extent, Store: store})
		all = len(answer.GetReplicas())
		for _, r := range answer.GetReplicas() {
			if r.GetOutcome() != "sound" && r.GetOutcome() != "lifted" {
				bad++
			}
			out.item([]field{
				{name: "extent", value: extent, detail: true}, {name: "store", value: r.GetStore()}, {name: "outcome", value: r.GetOutcome()},
				{name: "bytes", value: r.GetBytes()}, {name: "reason", value: r.GetReason()},
			})
		}
		return "", err
	})
	if err != nil {
		return err
	}
	if bad > 0 {
		a.say("%d of %s not verified as sound", bad, plural(all, "replica"))
		return errFailed
	}
	return nil
}
