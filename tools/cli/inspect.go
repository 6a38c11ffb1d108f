package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/tools/inspect"
	"github.com/columbamq/columba/wire"
)

// maxCompared is how many directories are compared at once.
const maxCompared = 16

func (a *app) inspectCommand() *cobra.Command {
	var records bool
	cmd := &cobra.Command{
		Use: "extent DIR... EXTENT", Short: "Verify an extent of stopped servers' data directories",
		Long: "Read a whole extent of the data directory DIR, while no server runs on it, and verify its headers, checksums and order.\n" +
			"With several directories, compare the replicas in them byte by byte up to the extent's end; a directory without the extent does\n" +
			"not count. Exit code 1 says that a replica is damaged, or is not the same as the others.",
		Example: "  columba inspect extent columba-data 01890a5d-ac96-774b-bcce-b302099a8057\n" +
			"  columba inspect extent columba-data 01890a5d-ac96-774b-bcce-b302099a8057 --records -o json\n" +
			"  columba inspect extent store1 store2 store3 01890a5d-ac96-774b-bcce-b302099a8057",
		Args: between(2, maxCompared+1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			dirs, last := args[:len(args)-1], args[len(args)-1]
			id, err := core.ParseID(last)
			if err != nil {
				return err
			}
			if len(dirs) > 1 {
				if records {
					return core.Errorf(core.CodeBadArgument, "--records prints one directory's records; name one")
				}
				return a.compareExtent(dirs, core.ExtentID{ID: id})
			}
			return a.inspectExtent(ctx, args[0], core.ExtentID{ID: id}, records)
		}),
	}
	cmd.Flags().BoolVar(&records, "records", false, "print every record instead of the summary")
	list := &cobra.Command{
		Use: "extents DIR", Short: "List the extents of a stopped server's data directory",
		Example: "  columba inspect extents columba-data",
		Args:    exactly(1),
		RunE:    a.run(func(_ context.Context, args []string) error { return a.inspectExtents(args[0]) }),
	}
	return parent("inspect", "Look into the data directory of a stopped server", list, cmd)
}

func (a *app) inspectExtents(dir string) error {
	store, err := inspect.Open(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	states, err := store.Extents()
	if err != nil {
		return err
	}
	out := a.printer()
	for _, st := range states {
		out.item([]field{
			{name: "extent", value: st.Extent.ID.String()}, {name: "opened", value: st.Opened}, {name: "fenced", value: st.Fenced},
			{name: "sealed", value: st.Sealed}, {name: "last_seq", value: uint64(st.Last)}, {name: "bytes", value: st.Bytes},
			{name: "damaged", value: st.Damaged},
		})
	}
	if len(states) == 0 {
		a.say("no extents")
	}
	return out.close()
}

func (a *app) inspectExtent(ctx context.Context, dir string, id core.ExtentID, records bool) error {
	store, err := inspect.Open(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	out := a.printer()
	visit := func(rec inspect.Record) error {
		if !records {
			return ctx.Err()
		}
		if err := out.item(recordFields(rec)); err != nil {
			return err
		}
		return ctx.Err()
	}
	r, err := store.Extent(id, visit)
	if err != nil {
		out.flush()
		return err
	}
	if records {
		err = out.close()
	} else {
		err = out.object(reportFields(r))
	}
	if err == nil && r.Damage != nil {
		err = core.Errorf(core.CodeCorrupt, "extent %s is damaged after seq %d: %w", id, r.Verified, r.Damage)
	}
	return err
}

// compareExtent prints a line for each directory.
func (a *app) compareExtent(dirs []string, id core.ExtentID) error {
	c, err := inspect.Compare(dirs, id)
	if err != nil {
		return err
	}
	out := a.printer()
	for _, r := range c.Replicas {
		verdict := "identical"
		switch {
		case r.Absent:
			verdict = "absent"
		case r.Differs != nil:
			verdict = r.Differs.Error()
		}
		if err := out.item([]field{
			{name: "dir", value: r.Dir}, {name: "opened", value: r.State.Opened}, {name: "fenced", value: r.State.Fenced}, {name: "sealed", value: r.State.Sealed},
			{name: "end", value: uint64(r.State.L)}, {name: "last_seq", value: uint64(r.State.Last)}, {name: "compared_to", value: uint64(c.UpTo)},
			{name: "verified_seq", value: uint64(r.Verified)}, {name: "verdict", value: verdict},
		}); err != nil {
			return err
		}
	}
	if err := out.close(); err != nil {
		return err
	}
	return c.Err()
}

func reportFields(r inspect.Report) []field {
	damage := ""
	if r.Damage != nil {
		damage = r.Damage.Error()
	}
	st := r.State
	return []field{
		{name: "extent", value: st.Extent.ID.String()}, {name: "kind", value: string(st.Extent.Kind)}, {name: "input", value: string(st.Extent.Input)},
		{name: "opened", value: st.Opened}, {name: "fenced", value: st.Fenced}, {name: "sealed", value: st.Sealed}, {name: "end", value: uint64(st.L)},
		{name: "last_seq", value: uint64(st.Last)}, {name: "bytes", value: st.Bytes}, {name: "batches", value: r.Batches},
		{name: "records", value: r.Records}, {name: "verified_seq", value: uint64(r.Verified)}, {name: "damage", value: damage},
	}
}

func recordFields(rec inspect.Record) []field {
	head := map[string]string{}
	wire.EachHeader(rec.Headers, func(name, value []byte) bool {
		head[string(name)] = string(value)
		return true
	})
	return []field{
		{name: "seq", value: uint64(rec.Seq)}, {name: "id", value: rec.ID.String()},
		{name: "enqueued", value: time.UnixMicro(rec.Enqueued).UTC().Format(timeLayout)},
		{name: "key", value: string(rec.Key)}, {name: "headers", value: head}, {name: "attempts", value: rec.Attempts},
		payloadField(rec.Payload),
	}
}
