package extentlog

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// contents are the prefixes under which an extent's records are.
func contents(timer bool) []byte {
	if timer {
		return []byte{prefixBatch, prefixDue}
	}
	return []byte{prefixBatch}
}

// cutContents removes the records of an extent from all tables.
func (e *Engine) cutContents(id core.ExtentID, timer bool) error {
	for _, prefix := range contents(timer) {
		span := pebble.KeyRange{Start: extentKey(prefix, id), End: afterExtent(prefix, id)}
		if err := e.guarded(func() error { return e.cutOut(span) }); err != nil {
			return err
		}
	}
	e.excised.Store(true)
	return nil
}

// cutOut removes a range from all tables. Tables that go beyond it are read at its edges, in a flush that comes later.
// One that cannot be read would fail there again and again, and the store with it. So the edges are read first, and the
// range stays in the tables if that fails.
func (e *Engine) cutOut(span pebble.KeyRange) error {
	it, err := e.db.NewIter(nil)
	if err != nil {
		return err
	}
	if it.SeekLT(span.Start); it.Error() == nil {
		it.SeekGE(span.End)
	}
	if err := it.Close(); err != nil { // it answers the error of a seek, too
		return err
	}
	if err := e.db.Excise(context.Background(), span); err != nil {
		return err
	}
	e.journal.keeper.cut()
	return nil
}
