package client

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestOutbox_TakeUnconfirmed takes the settlements of one of two extents, of every verb, some of them sent before the last Confirm: those of the
// other one stay.
func TestOutbox_TakeUnconfirmed(t *testing.T) {
	o := newOutbox()
	o.expectConfirms()
	for round := range core.Seq(2) {
		for _, handle := range []uint32{1, 2} {
			o.ack(handle, 10*round+1, 1)
			o.giveBack(handle, 10*round+2, 1)
			nack := wire.Nack{Handle: handle, Seq: 10*round + 3, Attempt: 1, Reason: []byte("later")}
			o.frame(wire.TypeNack, nack.Append)
			extend := wire.Extend{Handle: handle, Seq: 10*round + 4, Attempt: 1, Millis: 5}
			o.frame(wire.TypeExtend, extend.Append)
		}
		o.take(nil, int64(time.Hour)) // the first sends a Confirm, which is not answered
	}
	ref := &extentRef{}
	count := func(all []settlement) map[wire.FrameType]int {
		n := make(map[wire.FrameType]int)
		for _, x := range all {
			if x.extent != ref || x.verb == wire.TypeNack && x.reason != "later" || x.verb == wire.TypeExtend && x.delay != 5*time.Millisecond {
				t.Errorf("got %+v", x)
			}
			n[x.verb]++
		}
		return n
	}
	for _, handle := range []uint32{1, 2} {
		got := count(o.takeUnconfirmed(handle, ref))
		for _, verb := range []wire.FrameType{wire.TypeAck, wire.TypeReturn, wire.TypeNack, wire.TypeExtend} {
			if got[verb] != 2 {
				t.Errorf("of extent %d: %d settlements of type %d, want 2", handle, got[verb], verb)
			}
		}
		if again := o.takeUnconfirmed(handle, ref); len(again) > 0 {
			t.Errorf("of extent %d: %d more", handle, len(again))
		}
	}
}
