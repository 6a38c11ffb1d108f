package repair

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// giveUp gives up the extent of a harness from a seq on, and answers its row.
func giveUp(t *testing.T, r *Runner, c *harness, from core.Seq) metadata.SealRecord {
	t.Helper()
	row, err := metadata.Change(t.Context(), r.cfg.Meta, metadata.Seals, metadata.SealKey(c.extent().ID), func(s *metadata.SealRecord) error {
		s.Unacked = true
		return s.GiveUp(from, uint32(from), time.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	c.extents.Took(row)
	return row
}

// TestLeft_NothingIsSurplus: a copy too many of what is left may have more than the others.
func TestLeft_NothingIsSurplus(t *testing.T) {
	r, c := newRunner(t)
	giveUp(t, r, c, 3)
	if err := r.repair(t.Context(), c.extent().ID, false); err != nil {
		t.Fatal(err)
	}
	r.RemoveSurplus(t.Context(), c.extent().ID, core.Place{Store: "s4"})
	if len(c.removed) > 0 || len(c.extent().Holders) != 4 {
		t.Errorf("removed from %v, holders %v", c.removed, c.extent().Holders)
	}
}

// TestLeft_HolderOfLess: while a copy is made something is given up, or more of it: the copy is of another end than
// holders have now.
func TestLeft_HolderOfLess(t *testing.T) {
	r, c := newRunner(t)
	add := core.Place{Store: "s4", Disk: core.DiskID{ID: core.NewID(time.Now())}}
	row, _, err := metadata.Read[metadata.SealRecord](t.Context(), r.cfg.Meta, metadata.Seals, metadata.SealKey(c.extent().ID), metadata.Serial)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []core.Seq{3, 2} {
		given := giveUp(t, r, c, from)
		if _, err := r.addHolder(t.Context(), row, add, c.stores.Snapshot()); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("given up from %d on meanwhile: %v", from, err)
		}
		row = given
	}
	row, err = r.addHolder(t.Context(), row, add, c.stores.Snapshot())
	if err != nil || !slices.Contains(row.Holders, add.Store) || !row.Unacked {
		t.Errorf("%v, row %+v; want another holder, and that nothing was acknowledged by its end", err, row)
	}
}

func TestLeft_ChecksumAndQuarantined(t *testing.T) {
	on := func(id core.HostID, last core.Seq, sum uint32, written bool, flaw string) remainder {
		return remainder{Store: catalog.Store{Host: membership.Host{ID: id}}, last: last, checksum: sum, written: written, flaw: flaw}
	}
	for name, c := range map[string]struct {
		on          []remainder
		sum         uint32
		quarantined []string
	}{
		"nothing":             {nil, 0, nil},
		"the longest":         {[]remainder{on("a", 2, 2, true, ""), on("b", 3, 3, false, ""), on("c", 1, 1, true, "")}, 3, nil},
		"as it was written":   {[]remainder{on("a", 3, 8, false, ""), on("b", 3, 3, true, ""), on("c", 3, 9, true, "")}, 3, nil},
		"one that is damaged": {[]remainder{on("a", 4, 4, true, ", damaged"), on("b", 3, 3, true, ""), on("c", 3, 7, true, ", damaged")}, 3, []string{"a up to 4, damaged"}},
	} {
		l := &left{on: c.on}
		if sum := l.checksum(); sum != c.sum || !slices.Equal(l.quarantined(), c.quarantined) {
			t.Errorf("%s: checksum %d, quarantined %v; want %d, %v", name, sum, l.quarantined(), c.sum, c.quarantined)
		}
	}
}
