package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestLoad_DamagedRows: a hint and a seal row that cannot be decoded hold up their own extents alone, of a controller
// that is alone and of one beside others. Both name the rows. A row that is whole again is read.
func TestLoad_DamagedRows(t *testing.T) {
	for name, edit := range map[string]func(*Config){"alone": nil, "beside others": beside} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, edit: edit}, func(r *harness) {
				var all [5]core.Extent
				for i := range all {
					all[i] = r.extent(r.queue(3, 2), 5)
				}
				for _, e := range all[2:4] {
					_, err := r.seal(e, 5)
					r.ok(err)
				}
				sealed, version, err := metadata.Read[metadata.SealRecord](r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(all[2].ID), metadata.Serial)
				r.ok(err)
				r.ctl.end()
				damage := func(k metadata.Key, value string) {
					r.ok(r.meta.Put(r.t.Context(), metadata.Work, k, []byte(value), time.Now().Add(time.Second), 0, metadata.Quorum))
				}
				damage(metadata.HintKey(metadata.HintLive, all[0].ID), `{"id":`)
				damage(metadata.HintKey(metadata.HintOpen, all[1].ID), `{}`)
				r.ok(r.meta.Update(r.t.Context(), metadata.Seals, metadata.SealKey(all[2].ID), version, []byte(`{"state":7}`), 0))
				r.ctl = r.startController(edit)
				r.eventually("the extents are known", time.Minute, func() bool { return r.ctl.loaded() == nil })
				for i, want := range []bool{false, true, false, true, true} {
					if _, known := r.ctl.extents.Get(all[i].ID); known != want {
						t.Errorf("extent %d is known: %t, want %t", i, known, want)
					}
				}
				if n := r.value(r.ctl.metrics.unreadable); n != 3 {
					t.Errorf("%v rows count as unreadable, want 3", n)
				}
				for _, e := range all[:3] {
					if !strings.Contains(r.log.text(), "row="+e.ID.String()) {
						t.Errorf("the log does not name the row of %s", e.ID)
					}
				}
				row, err := r.meta.Get(r.t.Context(), metadata.Seals, metadata.SealKey(all[2].ID), metadata.Serial)
				r.ok(err)
				_, err = metadata.Decode[metadata.SealRecord](metadata.Seals, row)
				wants(t, "the row before it is mended", err, core.CodeCorrupt, "")
				again, err := metadata.NewRow(metadata.Seals, row.Key, sealed, time.Now())
				r.ok(err)
				r.ok(r.meta.Update(r.t.Context(), metadata.Seals, row.Key, row.Version, again.Value, 0))
				r.loads(r.ctl)
				if _, known := r.ctl.extents.Get(all[2].ID); !known {
					t.Error("an extent whose row is whole again is not known")
				}
				if n := r.value(r.ctl.metrics.unreadable); n != 2 {
					t.Errorf("%v rows count as unreadable after one was mended, want 2", n)
				}
				for hint, e := range map[metadata.Hint]core.Extent{metadata.HintLive: all[0], metadata.HintOpen: all[1]} { // as when another version retires the extents
					r.ok(r.meta.Remove(r.t.Context(), metadata.Work, metadata.HintKey(hint, e.ID), time.Now().Add(time.Minute), metadata.Quorum))
				}
				r.loads(r.ctl)
				if n := r.value(r.ctl.metrics.unreadable); n != 0 {
					t.Errorf("%v rows count as unreadable after the others were removed, want 0", n)
				}
			})
		})
	}
}
