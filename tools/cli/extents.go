package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (a *app) showExtentCommand() *cobra.Command {
	return &cobra.Command{
		Use: "extent EXTENT", Short: "Show one extent",
		Example: "  columba show extent 01890a5d-ac96-774b-bcce-b302099a8057",
		Args:    exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if _, err := core.ParseID(args[0]); err != nil {
				return err
			}
			return a.showExtent(ctx, args[0])
		}),
	}
}

func (a *app) showExtent(ctx context.Context, id string) error {
	e, err := ask(ctx, a, a.admin().GetExtent, &pb.GetExtentRequest{Extent: id})
	if err != nil {
		return err
	}
	return a.printer().object(extentFields(e))
}

func (a *app) listExtentsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "extents PATH", Aliases: []string{"extent"}, Short: "List the extents of a queue",
		Long: "List the extents of a queue, oldest first. An extent is a part of a queue: a log on some stores, with one writer. KIND is log, or timer for\n" +
			"delayed messages, with the longest delay of the extent. REPLICAS names the stores that were chosen when the extent was created.\n" +
			"COPIES counts the stores with all of a sealed extent, and the wanted number. \"away\" counts copies on stores that are not up (`columba list hosts`). CHAIN is the number of an extent in its cp queue. -o json names the stores with a copy.",
		Example: "  columba list extents /demo/trips -o json",
		Args:    exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			queue, err := core.ParseAnyQueuePath(args[0])
			if err != nil {
				return err
			}
			out, admin := a.fitted("REPLICAS", "CHAIN", "CREATED", "INPUT", "BYTES", "KIND"), a.admin()
			view := extentFields
			if a.format == formatTable {
				stores := a.stores(ctx)
				view = func(e *pb.ExtentInfo) []field { return listedExtent(e, stores) }
			}
			return a.pages(out, "extents", func(after string) (string, error) {
				page, err := ask(ctx, a, admin.ListExtents, &pb.ListExtentsRequest{Queue: queue, After: after})
				for _, e := range page.GetExtents() {
					out.item(view(e))
				}
				return page.GetNext(), err
			})
		}),
	}
}

func (a *app) listHostsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "hosts", Aliases: []string{"host"}, Short: "List the hosts of the cluster",
		Example: "  columba list hosts",
		Args:    exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			out := a.fitted("RUN", "ZONE", "SINCE", "ROLES")
			return a.pages(out, "hosts", func(string) (string, error) {
				list, err := ask(ctx, a, a.admin().ListHosts, &pb.ListHostsRequest{})
				for _, h := range list.GetHosts() {
					out.item(hostFields(h))
				}
				return "", err
			})
		}),
	}
}

func (a *app) showHostCommand() *cobra.Command {
	return &cobra.Command{
		Use: "host HOST", Short: "Show a host of the cluster",
		Example: "  columba show host host-b302099a8057",
		Args:    exactly(1), ValidArgsFunction: a.completeHosts,
		RunE: a.run(func(ctx context.Context, args []string) error {
			list, err := ask(ctx, a, a.admin().ListHosts, &pb.ListHostsRequest{})
			if err != nil {
				return err
			}
			for _, h := range list.GetHosts() {
				if h.GetHost() == args[0] {
					return a.printer().object(hostFields(h))
				}
			}
			since := "its start"
			if at := list.GetKnownSince(); at != nil {
				since = at.AsTime().UTC().Format(time.RFC3339)
			}
			return core.Errorf(core.CodeNotFound, "host %q is not in the cluster, nor was it since %s, and the server that answered knows of nothing earlier", clip(args[0]), since)
		}),
	}
}

// canSeal refuses an extent of the queue whose end is fixed already. The server checks everything else.
func (a *app) canSeal(ctx context.Context, queue, id string) error {
	e, err := ask(ctx, a, a.admin().GetExtent, &pb.GetExtentRequest{Extent: id})
	if err != nil {
		return err
	}
	if !core.ExtentState(e.GetState()).HasEnd() {
		return nil
	}
	q, err := ask(ctx, a, a.admin().GetQueue, &pb.GetQueueRequest{Path: queue})
	if err != nil {
		return err
	}
	if e.GetQueue() != q.GetSpec().GetPath() {
		return core.Errorf(core.CodeNotFound, "extent %s is not one of queue %s; see `columba list extents %s`", id, queue, queue)
	}
	return core.Errorf(core.CodeConflict, "extent %s is sealed already at %d; see `columba list extents %s` for the open ones", id, e.GetLastSeq(), queue)
}
