package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// TestShare_UncountedIsWhatDepthLacks compares both, what is unread, and the depth of the state alone, with a count seq
// by seq, however much of the extent was read.
func TestShare_UncountedIsWhatDepthLacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := core.Seq(rapid.IntRange(0, 60).Draw(t, "last"))
		var st State
		left := map[core.Seq]bool{}
		under := 0 // locked, delayed or dying
		now := second(100)
		for seq := core.Seq(1); seq <= last; seq++ {
			switch rapid.IntRange(0, 3).Draw(t, "fate") {
			case 0:
				st.done.Ack(seq)
				continue
			case 1:
				if st.messages == nil {
					st.messages = map[core.Seq]entry{}
				}
				e := entry{kind: kind(rapid.IntRange(0, int(kindTransferring)).Draw(t, "kind")), attempts: 1}
				if e.kind == kindTransferring {
					e.to = Destination(rapid.IntRange(0, Destinations-1).Draw(t, "to"))
				}
				if e.hasDue() {
					e.due = now.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "due")) * time.Minute).UnixMilli()
				}
				if e.kind >= kindBlocked || e.due > now.UnixMilli() {
					under++
				}
				st.messages[seq] = e
			}
			left[seq] = true
		}
		if d := st.Depth(last, now); d.Ready != len(left)-under || d.InFlight+d.Delayed+d.DeadLettering+d.RetryQueueing+d.Blocked != under {
			t.Fatalf("the state counts %+v, want %d ready and %d others", d, len(left)-under, under)
		}
		from, unbegun := core.Seq(rapid.IntRange(1, 61).Draw(t, "from")), uint64(0)
		for seq := range left {
			if _, begun := st.messages[seq]; !begun && seq >= from {
				unbegun++
			}
		}
		if got := st.Unbegun(from, last); got != unbegun {
			t.Fatalf("%d from %d on were not handed out, want %d", got, from, unbegun)
		}
		g := NewGroup(core.GroupSpec{}.WithDefaults())
		s := g.AddShare(extent(1), st, now)
		for {
			d := s.Depth()
			if got := uint64(d.Ready+d.InFlight+d.Delayed+d.RetryQueueing+d.DeadLettering+d.Blocked) + s.Uncounted(last); got != uint64(len(left)) {
				t.Fatalf("read from %d: %+v and %d uncounted are %d, want %d", s.ReadFrom(), d, s.Uncounted(last), got, len(left))
			}
			from, unread := s.ReadFrom(), uint64(0)
			for seq := range left {
				if from > 0 && seq >= from {
					unread++
				}
			}
			if got := s.Unread(last); got != unread {
				t.Fatalf("%d are unread from %d on, restored ones too, want %d", got, from, unread)
			}
			if from == 0 || from > last {
				return
			}
			if err := s.Offer(records(from, rapid.IntRange(1, int(last-from)+1).Draw(t, "batch"), nil), now); err != nil {
				t.Fatal(err)
			}
		}
	})
}
