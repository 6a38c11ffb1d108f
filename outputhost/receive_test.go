package outputhost

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire/ws"
)

// TestHold_CopiesOnlySmallParts: a batch of a backlog stays where it came in, a small part of a message does not keep
// all of it.
func TestHold_CopiesOnlySmallParts(t *testing.T) {
	const size = 64 << 10
	for _, test := range []struct {
		part   int
		copied bool
	}{{size, false}, {size / 10, false}, {size / smallPart, false}, {size/smallPart - 1, true}, {1, true}} {
		m := ws.Copy(make([]byte, size))
		part := m.Bytes[:test.part]
		got, b := hold(part, m)
		if copied := &got[0] != &part[0]; copied != test.copied || copied != (b == nil) || !bytes.Equal(got, part) {
			t.Errorf("%d bytes of %d: copied %v, buffer %v", test.part, size, copied, b)
		}
		b.Release()
		m.Release() // panics when it was not retained as often as released
	}
}

// TestDeliver_CopiesOnlySmallRuns: a large run is a frame of its own and stays where it came in, also beside a run of
// one message.
func TestDeliver_CopiesOnlySmallRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(1)
		c := b.connect()
		c.read()
		one := c.consume(g)
		run := func(count uint32, size int) dispatch.Run {
			b := &buffer{m: ws.Copy(make([]byte, size))}
			b.refs.Store(1)
			t.Cleanup(b.Release) // panics when it was not kept as often as released
			return dispatch.Run{Share: s.rules, Base: 1, Count: count, Attempt: 1, Bytes: b.m.Bytes, Buffer: b}
		}
		runs := []dispatch.Run{run(100, smallRun+1), run(1, smallRun), run(3, 10), run(1, smallRun+1), run(1, 20)}
		g.mu.Lock()
		defer g.mu.Unlock()
		var frames []int // bytes; negative: copied
		for _, d := range one.deliverLocked(runs, b.deps.Now(), nil) {
			n := len(d.records)
			if !slices.ContainsFunc(runs, func(r dispatch.Run) bool { return &r.Bytes[0] == &d.records[0] }) {
				n = -n
			}
			frames = append(frames, n)
			if d.release != nil {
				d.release()
			}
		}
		if want := []int{smallRun + 1, -(smallRun + 10), smallRun + 1, 20}; !slices.Equal(frames, want) {
			t.Errorf("frames of %v bytes, want %v; the negative ones are copied", frames, want)
		}
	})
}
