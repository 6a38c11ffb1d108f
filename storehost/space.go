package storehost

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

// inventory is all that is on the disk.
func (h *Host) inventory() (core.StoreIdentity, []extentlog.State, error) {
	log, err := h.extents()
	if err != nil {
		return core.StoreIdentity{}, nil, err
	}
	var all []extentlog.State
	err = log.List(func(s extentlog.State) bool {
		all = append(all, s)
		return true
	})
	return log.Identity(), all, err
}

// remove forgets an extent and gives its space back. An extent that is not here is gone already.
func (h *Host) remove(id core.ExtentID) error {
	log, err := h.extents()
	if err != nil {
		return err
	}
	if err := log.Remove(id); err != nil {
		if core.CodeOf(err) == core.CodeNotFound {
			return nil
		}
		return err
	}
	h.metrics.removed.Inc()
	return nil
}
