package extentlog_test

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

func open(fs vfs.FS) (extentlog.Log, error) {
	e, err := extentlog.Open(extentlogtest.Dir, extentlog.Options{Store: "s1", FS: fs, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func TestEngine_Conformance(t *testing.T) { extentlogtest.Run(t, open) }
