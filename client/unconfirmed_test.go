package client

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestOutbox_TakeUnconfirmed takes the settlements of one of two extents, of every verb, some of them sent before the
// last Confirm: those of the other one stay.
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

// TestOutbox_WhatCameAgainIsNotGivenBack delivers some of the messages again that were given back, before the host
// confirms it. When the stream is lost, only the others are given back once more.
func TestOutbox_WhatCameAgainIsNotGivenBack(t *testing.T) {
	for _, asked := range []bool{false, true} {
		o := newOutbox()
		o.expectConfirms()
		now := int64(time.Hour)
		if !asked {
			o.ack(1, 100, 1)
			now += int64(time.Hour)
			o.take(nil, now) // the Confirm goes with the ack
		}
		for seq := range core.Seq(10) {
			o.giveBack(1, seq+1, 1)
		}
		o.take(nil, now)
		o.cameAgain(1, []wire.DeliverRun{
			{Base: 9, Count: 5, Attempt: 1}, {Base: 1, Count: 1, Attempt: 2}, {Base: 5, Count: 1, Attempt: 1}, {Base: 4, Count: 1, Attempt: 1},
		})
		o.cameAgain(2, []wire.DeliverRun{{Base: 1, Count: 1, Attempt: 1}}) // another extent
		_, unsure, _ := o.end(now)
		want := []settledRun{{1, wire.SeqRun{Base: 1, Count: 3, Attempt: 1}}, {1, wire.SeqRun{Base: 6, Count: 3, Attempt: 1}}}
		if !slices.Equal(unsure.returns, want) {
			t.Errorf("with a Confirm behind them %t: given back again: %v, want %v", asked, unsure.returns, want)
		}
	}
}

// TestOutbox_ManyCameAgain: a frame of scattered deliveries that brings nothing again copies nothing of what was given
// back.
func TestOutbox_ManyCameAgain(t *testing.T) {
	o := newOutbox()
	o.expectConfirms()
	var others []wire.DeliverRun
	for i := range core.Seq(2000) {
		o.giveBack(1, 2*i+1, 1)
		others = append(others, wire.DeliverRun{Base: 2*i + 2, Count: 1, Attempt: 1})
	}
	o.take(nil, int64(time.Hour))
	if n := testing.AllocsPerRun(1, func() { o.cameAgain(1, others) }); n > 1 {
		t.Errorf("%.0f allocations for a frame that brings nothing again, want one", n)
	}
	o.cameAgain(1, []wire.DeliverRun{{Base: 1, Count: 4000, Attempt: 1}})
	if _, unsure, _ := o.end(0); len(unsure.returns) > 0 {
		t.Errorf("%v is given back again", unsure.returns)
	}
}

// TestConsumeStream_BrokenFrameBringsNothingAgain: what a frame names that cannot be read is not here again. It is
// given back once more when the stream ends for that frame.
func TestConsumeStream_BrokenFrameBringsNothingAgain(t *testing.T) {
	s := &consumeStream{out: newOutbox()}
	s.extents.byHandle = map[uint32]*extentRef{1: {}}
	s.out.expectConfirms()
	s.out.mu.room = room{messages: 10, bytes: 1 << 10}
	s.out.giveBack(1, 1, 1)
	s.out.take(nil, int64(time.Hour))
	s.deliver = wire.Deliver{Handle: 1, Runs: []wire.DeliverRun{{Base: 1, Count: 1, Attempt: 1}}, Records: make([]byte, wire.RecordHeaderLen)}
	err := s.receive()
	if _, unsure, _ := s.out.end(0); err == nil || len(unsure.returns) != 1 {
		t.Errorf("%v, and %v is given back again, want an error and message 1", err, unsure.returns)
	}
}

// TestOutbox_ConfirmGoesWithSettlements: a Confirm alone costs the host a read and a write. One goes with the
// settlements of a consumer that goes on, and one alone after the last ones.
func TestOutbox_ConfirmGoesWithSettlements(t *testing.T) {
	o := newOutbox()
	o.expectConfirms()
	now := int64(time.Hour)
	sent := func() (types []wire.FrameType) {
		out, _ := o.take(nil, now)
		for len(out) > 0 {
			f, rest, err := wire.NextFrame(out)
			if err != nil {
				t.Fatal(err)
			}
			types, out = append(types, f.Type), rest
		}
		return types
	}
	want := func(what string, types ...wire.FrameType) {
		t.Helper()
		if got := sent(); !slices.Equal(got, types) {
			t.Errorf("%s: sent frames %v, want %v", what, got, types)
		}
	}
	o.ack(1, 1, 1)
	want("the first ack", wire.TypeAck, wire.TypeConfirm)
	o.applied(1)
	now += confirmEvery / 2
	o.ack(1, 2, 1)
	want("an ack soon after a Confirm", wire.TypeAck)
	if _, pause := o.take(nil, now); pause != time.Duration(confirmAlone-confirmEvery/2) {
		t.Errorf("the sender is to come again after %s", pause)
	}
	now += confirmEvery
	want("no ack since")
	o.ack(1, 3, 1)
	want("an ack later", wire.TypeAck, wire.TypeConfirm)
	o.applied(2)
	o.ack(1, 4, 1)
	want("the last ack", wire.TypeAck)
	now += confirmAlone
	want("nothing for a while", wire.TypeConfirm)
}
