package outputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core/dispatch"
)

// TestResume_ShareThatComesBack: an owner gives a share away and has it again while it still takes late settlements.
// It goes on from where the owner between them was, also if that has not heard of the last ones.
func TestResume_ShareThatComesBack(t *testing.T) {
	for _, late := range []bool{false, true} {
		x, first := newSuccessors(t)
		g, s := x.own(first)
		x.takes(first, g, 3)
		x.gives(first, g, s)
		second := x.host("second")
		next, taken := x.own(second)
		x.returns(second, next, taken, 2)
		if late {
			x.acksLate(first, g, s, 1)
		}
		x.gives(second, next, taken)

		g, s = x.own(first)
		x.want("the first owner, again,", x.takes(first, g, 1), "2@1")
		first.saveAll()
		x.returns(first, g, s, 3)
		x.gives(first, g, s)

		third := x.host("third")
		g, _ = x.own(third)
		x.want("the third owner", x.takes(third, g, 2), "3@1", "4@1") // 2 is with a consumer of the first
	}
}

// TestResume_CrowdedShareThatComesBack: an owner had no room in its row for the locks of its consumers when it gave a
// share away. It has them itself when the share comes back, whatever the owner between them resumed from.
func TestResume_CrowdedShareThatComesBack(t *testing.T) {
	const n = 10_000
	x, first := newSuccessors(t)
	g, s := x.own(first)
	now := first.deps.Now()
	g.mu.Lock()
	r := dispatch.Records{Base: 11, Offsets: make([]uint32, n-10+1), Bytes: make([]byte, n-10)}
	for i := range r.Offsets {
		r.Offsets[i] = uint32(i)
	}
	if err := s.rules.Offer(r, now); err != nil {
		t.Fatal(err)
	}
	g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
	for i := range n { // each has a deadline of its own
		g.mu.rules.Take(1, dispatch.Credit{Messages: 1, Bytes: 1 << 20}, now.Add(time.Duration(i)*time.Millisecond), nil)
	}
	if err := s.rules.Nack(1, 1, time.Minute, nil, 0, now.Add(n*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	g.mu.Unlock()
	x.gives(first, g, s)
	if s.late.first != 0 {
		t.Errorf("the row counts as one that tells all, since %d", s.late.first)
	}
	second := x.host("second")
	next, taken := x.own(second)
	x.want("the second owner", x.takes(second, next, 1), "2@1")
	second.saveAll()
	x.gives(second, next, taken)
	g, _ = x.own(first)
	x.want("the first owner, again,", x.takes(first, g, 3))
}
