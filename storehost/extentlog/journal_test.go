package extentlog

import (
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
	"github.com/columbamq/columba/wire"
)

// FuzzBody: any bytes are the body of a group or CodeCorrupt. The database takes the rows of what is one.
func FuzzBody(f *testing.F) {
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), DisableWAL: true})
	must(f, err)
	f.Cleanup(func() { must(f, db.Close()) })
	rows := db.NewBatch()
	id := newExtent().ID
	must(f, rows.Set(extentKey(prefixRow, id), []byte("row"), nil))
	must(f, rows.Delete(extentKey(prefixPosition, id), nil))
	must(f, rows.DeleteRange(batchKey(id, 1), batchKey(id, 9), nil))
	batch := nextBatch(f, new(wire.BatchHeader), 10)
	body := append(append([]byte{}, id.ID[:]...), binary.LittleEndian.AppendUint32(nil, uint32(len(batch)))...)
	body = append(append(body, batch...), rows.Repr()...)
	body = binary.LittleEndian.AppendUint32(body, uint32(rows.Len()))
	f.Add(body)
	f.Add(body[:len(body)-1])
	f.Add(append(make([]byte, 12), 12, 0, 0, 0))
	if _, err := decodeGroup(ring.Group{Body: body}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := decodeGroup(ring.Group{Body: b})
		if err != nil {
			if core.CodeOf(err) != core.CodeCorrupt {
				t.Errorf("%v, want %q", err, core.CodeCorrupt)
			}
			return
		}
		batch := db.NewBatch()
		defer batch.Close()
		if err := batch.SetRepr(append([]byte{}, out.rows...)); err != nil {
			t.Errorf("the database does not take the rows: %v", err)
			return
		}
		if err := db.Apply(batch, pebble.NoSync); err != nil {
			t.Errorf("the database does not apply the rows: %v", err)
		}
	})
}
