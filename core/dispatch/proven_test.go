package dispatch

import (
	"testing"

	"github.com/columbamq/columba/core"
)

// TestAckProven_UnreadLeavesRoom: a consumer that derives tokens for every other message of a long extent which nobody
// has read here cannot fill the checkpoint. The next owner resumes from it, reads on, and takes such acks of messages
// that it has read.
func TestAckProven_UnreadLeavesRoom(t *testing.T) {
	const extentLen = 2_000_000
	_, s := newShare(t, core.GroupSpec{}, 0)
	refused := 0
	for seq := core.Seq(2); seq <= extentLen; seq += 2 {
		if !s.TakesProven(seq) {
			refused++
			continue
		}
		if !s.AckProven(seq, start) {
			t.Fatalf("the ack of %d is refused", seq)
		}
	}
	if refused == 0 {
		t.Error("every ack of an unread message is taken")
	}
	blob := save(s, start)
	if _, err := DecodeState(blob); err != nil {
		t.Error(err)
	}
	if len(blob) > fullAt {
		t.Fatalf("the checkpoint has %d bytes of %d", len(blob), MaxCheckpoint)
	}
	g, s := resume(t, core.GroupSpec{}, blob, 100, start)
	save(s, start)
	if !s.WantsMore() || len(take(g, 10, start)) == 0 {
		t.Error("nothing more of the share is read and handed out")
	}
	for _, r := range []core.Seq{1, 3} { // read and handed out here
		if !s.TakesProven(r) || !s.AckProven(r, start) {
			t.Errorf("the ack of %d, which was read, is refused", r)
		}
	}
}
