package catalog

import (
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
)

// mostPlaces bounds the lists that a placesTable knows.
const mostPlaces = 1 << 14

// places is a list of hosts with their disks. It is never changed.
type places struct {
	hosts []core.HostID
	disks []core.DiskID // of the hosts, in their order; some may be missing at its end
	all   []core.Place  // both together
}

// placesTable keeps equal lists once: a cluster has few sets of stores, and many extents on each of them. A full table
// forgets all lists. Entries keep theirs, and equal ones that come later are kept once more.
type placesTable struct {
	known map[string]*places // by their encoding
	buf   []byte
}

// none is the empty list.
var none = &places{}

// of the hosts with these disks.
func (t *placesTable) of(hosts []core.HostID, disks []core.DiskID) *places {
	if len(hosts)+len(disks) == 0 {
		return none
	}
	t.buf = binary.AppendUvarint(t.buf[:0], uint64(len(hosts)))
	for _, h := range hosts {
		t.buf = append(binary.AppendUvarint(t.buf, uint64(len(h))), h...)
	}
	for _, d := range disks {
		t.buf = append(t.buf, d.ID[:]...)
	}
	if known := t.known[string(t.buf)]; known != nil {
		return known
	}
	list := &places{slices.Clip(slices.Clone(hosts)), slices.Clip(slices.Clone(disks)), make([]core.Place, len(hosts))}
	for i, h := range hosts {
		list.all[i].Store = h
		if i < len(disks) {
			list.all[i].Disk = disks[i]
		}
	}
	if t.known == nil || len(t.known) >= mostPlaces {
		t.known = make(map[string]*places)
	}
	t.known[string(t.buf)] = list
	return list
}

// ofPlaces is of their stores and disks.
func (t *placesTable) ofPlaces(all []core.Place) *places {
	hosts, disks := make([]core.HostID, 0, 8), make([]core.DiskID, 0, 8)
	for _, p := range all {
		hosts, disks = append(hosts, p.Store), append(disks, p.Disk)
	}
	return t.of(hosts, disks)
}
