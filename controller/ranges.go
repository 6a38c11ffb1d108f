package controller

import "github.com/columbamq/columba/core"

// buckets are some of those into which inventories are divided.
type buckets [core.InventoryBuckets]bool

var allBuckets = func() (all buckets) {
	for b := range all {
		all[b] = true
	}
	return all
}()

// list are the numbers of the buckets.
func (x buckets) list() (out []uint32) {
	for b, in := range x {
		if in {
			out = append(out, uint32(b))
		}
	}
	return out
}

// without others.
func (x buckets) without(others buckets) buckets {
	for b := range x {
		x[b] = x[b] && !others[b]
	}
	return x
}

// exceeds reports whether there is a bucket that others lack.
func (x buckets) exceeds(others buckets) bool { return x.without(others) != (buckets{}) }

// inventoryRanges is into how many parts inventories are divided among controllers.
const inventoryRanges = 64

// rangeOf is the key by which one controller is responsible for the range of a bucket, on all stores (docs/adr/0062).
func rangeOf(bucket int) core.ID {
	return core.ID{0: 'i', 15: byte(bucket / (core.InventoryBuckets / inventoryRanges))}
}

// inventories reports whether this controller compares the replicas of an extent with its row.
func (h *Host) inventories(id core.ExtentID) bool {
	return h.duties.Responsible(rangeOf(core.InventoryBucket(id)))
}

// inventoried are the buckets of the ranges that this controller is responsible for.
func (h *Host) inventoried() (out buckets) {
	if h.cfg.Alone {
		return allBuckets
	}
	const each = core.InventoryBuckets / inventoryRanges
	for first := 0; first < len(out); first += each {
		if h.duties.Responsible(rangeOf(first)) {
			for b := first; b < first+each; b++ {
				out[b] = true
			}
		}
	}
	return out
}

// divide has the mirror be of some buckets. It lacks the replicas of buckets that come to it: see compareDigests.
func (m *mirror) divide(mine buckets) {
	if lost := m.mine.without(mine); lost != (buckets{}) {
		m.clear(lost)
		m.listed = m.listed.without(lost)
	}
	m.mine = mine
}
