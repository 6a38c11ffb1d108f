package controller

import (
	"context"
	"slices"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// tell gives all replicas their end, side by side. When every holder knows it the seal is finished; others that are
// away are completed by repair, or hear of it when their inventories are compared. It answers whether all holders know
// it.
func (h *Host) tell(ctx context.Context, row metadata.SealRecord) (all bool) {
	targets := slices.Clone(row.Holders)
	for _, id := range row.Extent.Replicas {
		if !slices.Contains(targets, id) {
			targets = append(targets, id)
		}
	}
	told := make(chan bool, len(targets))
	for i, id := range targets {
		isHolder := i < len(row.Holders)
		if !h.stores.Answers(id) || !h.tasks.Go(func(context.Context) { told <- h.tellStore(ctx, row, id) || !isHolder }) {
			told <- !isHolder
		}
	}
	all = true
	for range targets {
		all = <-told && all
	}
	if all = all || row.LostFrom > 0; all { // no holder may be left to be told
		h.finished(ctx, row)
	}
	return all
}

// tellStore gives one store the end, and says whether it has it now.
func (h *Host) tellStore(ctx context.Context, row metadata.SealRecord, id core.HostID) bool {
	err := h.replicas.Seal(ctx, row, core.Place{Store: id, Disk: diskOf(row, id)}, row.Version)
	x := replica{row.Extent.ID, id}
	if err == nil || row.LostFrom > 0 && core.CodeOf(err) == core.CodeIncomplete { // no more is left
		h.untold.told(x)
		return true
	}
	switch core.CodeOf(err) {
	case core.CodeIncomplete: // it keeps the end, and is completed by repair
		h.repairs.Want(row.Extent.ID)
	case core.CodeCorrupt:
		h.repairs.Quarantine(ctx, row.Extent.ID, id, "it does not match at its end")
	}
	if ctx.Err() != nil { // this process stops: it says nothing of the store
		return false
	}
	if times := h.untold.failed(x, err.Error(), h.deps.now()); times > 0 {
		h.log.Info("a replica was not told its end", "extent", row.Extent.ID, "store", id, "times", times, "err", err)
	}
	return false
}

// diskOf a store that the end is meant for: that of the holder, else that of the replica; zero is any.
func diskOf(row metadata.SealRecord, id core.HostID) core.DiskID {
	for _, x := range row.Places() {
		if x.Store == id {
			return x.Disk
		}
	}
	return row.Extent.Disk(id)
}

// tellAgain tells the end of an extent that was sealed before, and answers whether all holders know it.
func (h *Host) tellAgain(ctx context.Context, e catalog.Extent) bool {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.One)
	return err == nil && row.State.HasEnd() && h.tell(ctx, row)
}

// finished notes that every holder knows its end, and removes the hint of an extent that has all its copies.
func (h *Host) finished(ctx context.Context, row metadata.SealRecord) {
	id := row.Extent.ID
	h.extents.Change(id, func(x *catalog.Extent) { x.Told = true })
	if e, ok := h.extents.Get(id); !ok || len(e.Holders) < e.Copies() {
		return
	}
	if err := h.deps.Meta.Remove(ctx, metadata.Work, metadata.HintKey(metadata.HintOpen, id), h.deps.now(), metadata.One); err != nil {
		h.log.Info("a work hint stays behind", "extent", id, "err", err)
		h.extents.Change(id, func(x *catalog.Extent) { x.Told = false })
	}
}
