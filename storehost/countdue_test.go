package storehost

import (
	"bytes"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// noneDue is a log in which nothing is due.
type noneDue struct{ extentlog.Log }

func (noneDue) Due(core.ExtentID, extentlog.DueQuery, func(extentlog.DueRecord)) (extentlog.DueRun, error) {
	return extentlog.DueRun{}, nil
}

// TestCountDue_WindowIsBounded: a window takes up to 64 times as much memory as the bytes that tell of it.
func TestCountDue_WindowIsBounded(t *testing.T) {
	window := func(length int) []byte { // every second seq, as bits
		return append([]byte{0, 1, 0, byte(length) | 0x80, byte(length>>7) | 0x80, byte(length >> 14)}, bytes.Repeat([]byte{0x55}, length)...)
	}
	for length, code := range map[int]core.Code{wire.MaxKnown - 6: "", wire.MaxKnown + 1<<14: core.CodeTooLarge} {
		_, err := countDue(noneDue{}, core.ExtentID{}, &pb.ListDueRequest{CountUntil: 1, Known: window(length)})
		if core.CodeOf(err) != code {
			t.Errorf("a window of %d bytes: %v", length+6, err)
		}
	}
}

// TestCountDue_NoWindow: what a caller sends is not what the store has. A store that says its data are damaged is asked
// no more.
func TestCountDue_NoWindow(t *testing.T) {
	for _, known := range [][]byte{{0xff}, []byte("no window"), {0, 0, 0, 7}} {
		_, err := countDue(noneDue{}, core.ExtentID{}, &pb.ListDueRequest{CountUntil: 1, Known: known})
		if core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("the window %x: %v, want %s", known, err, core.CodeBadArgument)
		}
	}
}
