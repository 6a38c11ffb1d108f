package controller

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// confirmed is a controller whose metadata have just that row.
func confirmed(t *testing.T, row *metadata.SealRecord) *service {
	t.Helper()
	meta := memory.New()
	if row != nil {
		if err := metadata.Create(t.Context(), meta, metadata.Seals, metadata.SealKey(row.Extent.ID), *row); err != nil {
			t.Fatal(err)
		}
	}
	return &service{&Host{cfg: DefaultConfig(), deps: Deps{Meta: meta}, duties: alone{}}}
}

// TestConfirmRemoval: a removal is that of a retired extent, or was decided in the row of just that replica, and
// nothing has changed since.
func TestConfirmRemoval(t *testing.T) {
	now := time.Now()
	id, disk, other := core.ExtentID{ID: core.NewID(now)}, core.DiskID{ID: core.NewID(now)}, core.DiskID{ID: core.NewID(now)}
	sealed := func(change func(*metadata.SealRecord)) *metadata.SealRecord {
		row := &metadata.SealRecord{Extent: core.Extent{ID: id, Replicas: []core.HostID{"a", "b"}}, State: core.ExtentSealed, L: 7, Checksum: 9, Version: 4}
		row.SetPlaces([]core.Place{{Store: "a", Disk: disk}, {Store: "b"}})
		change(row)
		return row
	}
	state := func(s core.ExtentState) *metadata.SealRecord {
		return sealed(func(r *metadata.SealRecord) { r.State = s })
	}
	decided := func(at core.Place, change func(*metadata.SealRecord)) *metadata.SealRecord {
		return sealed(func(r *metadata.SealRecord) {
			r.DecideRemoval(at, now)
			change(r)
		})
	}
	same := func(*metadata.SealRecord) {}
	for name, c := range map[string]struct {
		row     *metadata.SealRecord
		version uint64
		by      core.Place
		want    core.Code
	}{
		"retired, of a holder":            {state(core.ExtentRetired), 4, core.Place{Store: "a", Disk: disk}, ""},
		"retired, of any store":           {state(core.ExtentRetired), 4, core.Place{Store: "z", Disk: other}, ""},
		"retired, another version":        {state(core.ExtentRetired), 5, core.Place{Store: "a", Disk: disk}, core.CodeConflict},
		"no row":                          {nil, 1 << 60, core.Place{Store: "a", Disk: disk}, core.CodeConflict},
		"sealing":                         {state(core.ExtentSealing), 4, core.Place{Store: "z", Disk: disk}, core.CodeConflict},
		"sealed, of a holder":             {sealed(same), 4, core.Place{Store: "a", Disk: disk}, core.CodeConflict},
		"sealed, of another store":        {sealed(same), 4, core.Place{Store: "z", Disk: other}, core.CodeConflict},
		"retiring, of a holder":           {state(core.ExtentRetiring), 4, core.Place{Store: "a", Disk: disk}, core.CodeConflict},
		"decided":                         {decided(core.Place{Store: "z", Disk: other}, same), 5, core.Place{Store: "z", Disk: other}, ""},
		"decided of any disk":             {decided(core.Place{Store: "z"}, same), 5, core.Place{Store: "z", Disk: other}, ""},
		"decided, by now retiring":        {decided(core.Place{Store: "z"}, func(r *metadata.SealRecord) { r.State = core.ExtentRetiring }), 5, core.Place{Store: "z", Disk: other}, ""},
		"decided of a holder's new disk":  {decided(core.Place{Store: "a", Disk: other}, same), 5, core.Place{Store: "a", Disk: other}, ""},
		"decided, the holder's own disk":  {decided(core.Place{Store: "a", Disk: other}, same), 5, core.Place{Store: "a", Disk: disk}, core.CodeConflict},
		"decided of another store":        {decided(core.Place{Store: "z", Disk: other}, same), 5, core.Place{Store: "y", Disk: other}, core.CodeConflict},
		"decided, and changed since":      {decided(core.Place{Store: "z", Disk: other}, func(r *metadata.SealRecord) { r.Version++ }), 5, core.Place{Store: "z", Disk: other}, core.CodeConflict},
		"decided, changed, by the newest": {decided(core.Place{Store: "z", Disk: other}, func(r *metadata.SealRecord) { r.Version++ }), 6, core.Place{Store: "z", Disk: other}, core.CodeConflict},
		"decided, a holder by now": {decided(core.Place{Store: "z", Disk: other}, func(r *metadata.SealRecord) {
			r.SetPlaces([]core.Place{{Store: "z", Disk: other}})
		}), 5, core.Place{Store: "z", Disk: other}, core.CodeConflict},
	} {
		s := confirmed(t, c.row)
		_, err := s.ConfirmRemoval(t.Context(), connect.NewRequest(&pb.ConfirmRemovalRequest{
			Extent: id.ID[:], Version: c.version, Store: convert.IdentityToProto(core.StoreIdentity{Store: c.by.Store, Disk: c.by.Disk}),
		}))
		if got := core.CodeOf(convert.FromRPC(err)); got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestConfirmEnd: the end is that of the row, and the version at most its next one, which a store is told before it
// becomes a holder.
func TestConfirmEnd(t *testing.T) {
	id := core.ExtentID{ID: core.NewID(time.Now())}
	row := func(s core.ExtentState) *metadata.SealRecord {
		return &metadata.SealRecord{Extent: core.Extent{ID: id}, State: s, L: 7, Checksum: 9, Version: 4}
	}
	for name, c := range map[string]struct {
		row      *metadata.SealRecord
		l        uint64
		checksum uint32
		version  uint64
		want     core.Code
	}{
		"its end":             {row(core.ExtentSealed), 7, 9, 4, ""},
		"of before":           {row(core.ExtentSealed), 7, 9, 1, ""},
		"before it is holder": {row(core.ExtentSealed), 7, 9, 5, ""},
		"retiring":            {row(core.ExtentRetiring), 7, 9, 4, ""},
		"retired":             {row(core.ExtentRetired), 7, 9, 4, ""},
		"a later version":     {row(core.ExtentSealed), 7, 9, 6, core.CodeConflict},
		"another end":         {row(core.ExtentSealed), 6, 9, 4, core.CodeConflict},
		"another content":     {row(core.ExtentSealed), 7, 8, 4, core.CodeConflict},
		"sealing":             {row(core.ExtentSealing), 7, 9, 4, core.CodeConflict},
		"no row":              {nil, 0, 0, 1, core.CodeConflict},
	} {
		_, err := confirmed(t, c.row).ConfirmEnd(t.Context(), connect.NewRequest(&pb.ConfirmEndRequest{Extent: id.ID[:], L: c.l, Checksum: c.checksum, Version: c.version}))
		if got := core.CodeOf(convert.FromRPC(err)); got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestConfirm_UnknownWithoutTheMetadata: a failure to read is no answer.
func TestConfirm_UnknownWithoutTheMetadata(t *testing.T) {
	id := core.NewID(time.Now())
	s := &service{&Host{cfg: DefaultConfig(), deps: Deps{Meta: faulty.New(memory.New(), faulty.Faults{Before: 1})}, duties: alone{}}}
	_, err := s.ConfirmRemoval(t.Context(), connect.NewRequest(&pb.ConfirmRemovalRequest{Extent: id[:], Version: 1, Store: &pb.StoreIdentity{Store: "a"}}))
	if got := core.CodeOf(convert.FromRPC(err)); got != core.CodeUnavailable {
		t.Errorf("a removal without the metadata: %v, want %s", err, core.CodeUnavailable)
	}
}
