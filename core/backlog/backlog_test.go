package backlog_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/core/dispatch"
)

// TestOf is the table of what counts for a group in an extent of 100 messages of 10 bytes.
func TestOf(t *testing.T) {
	extent := backlog.Extent{Last: 100, Bytes: 1000}
	thinned := backlog.Extent{Last: 100, Bytes: 1000, Removed: 40}
	for name, c := range map[string]struct {
		e    backlog.Extent
		p    backlog.Progress
		want backlog.Depth
	}{
		"nothing read":                    {extent, backlog.Progress{Oldest: 7}, backlog.Depth{Ready: 100, Bytes: 1000, Oldest: 7}},
		"an empty extent":                 {backlog.Extent{}, backlog.Progress{}, backlog.Depth{}},
		"all settled":                     {extent, backlog.Progress{Settled: 100, Oldest: 7}, backlog.Depth{}},
		"begins at the end":               {extent, backlog.Progress{Settled: 101}, backlog.Depth{}},
		"held and unread":                 {extent, backlog.Progress{Settled: 10, Ready: 20, InFlight: 3, Delayed: backlog.Delayed{Publish: 4, Retry: 5, Group: 7}, Blocked: 6}, backlog.Depth{Ready: 65, InFlight: 3, Delayed: backlog.Delayed{Publish: 4, Retry: 5, Group: 7}, Blocked: 6, Bytes: 900}},
		"unread ones are delayed":         {extent, backlog.Progress{Settled: 10, Ready: 20, Unread: backlog.DelayedPublish}, backlog.Depth{Ready: 20, Delayed: backlog.Delayed{Publish: 70}, Bytes: 900}},
		"some of them are due":            {extent, backlog.Progress{Settled: 10, Unread: backlog.DelayedPublish, Due: 30}, backlog.Depth{Ready: 30, Delayed: backlog.Delayed{Publish: 60}, Bytes: 900}},
		"more are due than are left":      {extent, backlog.Progress{Settled: 90, Unread: backlog.DelayedPublish, Due: 30}, backlog.Depth{Ready: 10, Bytes: 100}},
		"unread ones wait for a retry":    {extent, backlog.Progress{Settled: 10, InFlight: 20, Unread: backlog.DelayedRetry}, backlog.Depth{InFlight: 20, Delayed: backlog.Delayed{Retry: 70}, Bytes: 900}},
		"unread ones wait for the group":  {extent, backlog.Progress{Settled: 10, Unread: backlog.DelayedGroup, Due: 30}, backlog.Depth{Ready: 30, Delayed: backlog.Delayed{Group: 60}, Bytes: 900}},
		"some of these are due":           {extent, backlog.Progress{Settled: 10, Unread: backlog.DelayedRetry, Due: 30, Oldest: 7}, backlog.Depth{Ready: 30, Delayed: backlog.Delayed{Retry: 60}, Bytes: 900, Oldest: 7}},
		"removed, and the owner knows":    {thinned, backlog.Progress{Settled: 50}, backlog.Depth{Ready: 50, Bytes: 500}},
		"removed, the owner was not told": {thinned, backlog.Progress{Settled: 10}, backlog.Depth{Ready: 60, Bytes: 600}},
		"removed entirely":                {backlog.Extent{Last: 10, Bytes: 10, Removed: 10}, backlog.Progress{}, backlog.Depth{}},
		"the owner read further":          {backlog.Extent{Last: 10, Bytes: 100}, backlog.Progress{Settled: 8, InFlight: 6}, backlog.Depth{InFlight: 6, Bytes: 60}},
	} {
		if got := backlog.Of(c.e, c.p); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestOf_Model compares with a group that counts one message after another, whose progress is what a checkpoint of it
// says.
func TestOf_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.IntRange(0, 60).Draw(t, "last")
		start := rapid.IntRange(0, last+3).Draw(t, "start") // the group begins behind it, perhaps behind the committed seq
		lost := rapid.IntRange(1, last+1).Draw(t, "lost")   // this message and all behind it are given up
		if rapid.Bool().Draw(t, "whole") {
			lost = last + 1
		}
		var removed, done acklevel.Window
		settled := make([]bool, last+1)
		for seq := 1; seq <= last; seq++ {
			if seq >= lost || rapid.IntRange(0, 9).Draw(t, "removed") == 0 {
				removed.Ack(core.Seq(seq))
				settled[seq] = true
			}
			if rapid.Bool().Draw(t, "acked") {
				done.Ack(core.Seq(seq))
				settled[seq] = true
			}
			if seq <= start {
				settled[seq] = true
			}
		}
		state := dispatch.StartAfter(core.Seq(start))
		state.Merge(dispatch.StateDone(&done))
		state.Merge(dispatch.StateDone(&removed))
		want := uint64(0)
		for seq := 1; seq <= last; seq++ {
			if !settled[seq] {
				want++
			}
		}
		const size = 8
		e := backlog.Extent{Last: core.Seq(last), Bytes: uint64(last) * size, Removed: uint64(removed.Frontier()) + removed.Above()}
		counted := state.Depth(e.Last, time.Unix(0, 0))
		p := backlog.Progress{Settled: state.Consumed(), InFlight: uint64(counted.InFlight)}
		got := backlog.Of(e, p)
		if got.Messages() != want || got.Bytes != want*size {
			t.Fatalf("%+v of %+v and %+v; want %d messages", got, e, p, want)
		}
		if got := backlog.Stored(e); got != uint64(last)-e.Removed {
			t.Fatalf("%d stored, want %d", got, uint64(last)-e.Removed)
		}
	})
}

// TestDepth_Add: the oldest message of a sum is that of the part that has one.
func TestDepth_Add(t *testing.T) {
	var d backlog.Depth
	for _, oldest := range []int64{0, 9, 0, 5, 7} {
		d.Add(backlog.Depth{Ready: 1, InFlight: 2, Delayed: backlog.Delayed{Publish: 3, Retry: 4, Group: 7}, Blocked: 5, Bytes: 6, Oldest: oldest})
	}
	if want := (backlog.Depth{Ready: 5, InFlight: 10, Delayed: backlog.Delayed{Publish: 15, Retry: 20, Group: 35}, Blocked: 25, Bytes: 30, Oldest: 5}); d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
}
