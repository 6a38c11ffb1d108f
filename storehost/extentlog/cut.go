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
	return nil
}

// cutOut removes a range from all tables. If one of them cannot be read beside the range, all stay as they are.
func (e *Engine) cutOut(span pebble.KeyRange) error {
	return e.excising(span, func() error { return e.db.Excise(context.Background(), span) })
}
