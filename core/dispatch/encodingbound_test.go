package dispatch

import (
	"runtime"
	"testing"

	"github.com/columbamq/columba/core"
)

// oneRun is a checkpoint of a few bytes that tells of n messages in a row.
func oneRun(n int) []byte {
	blob, _, _ := appendState(nil, &policyStates{}, nil, &(&State{}).done, []entry{{first: 1, count: uint32(n), kind: kindWaiting, attempts: 1}}, false)
	return blob
}

// TestDecodeState_Bound: the number of messages of a checkpoint is bounded, and is known before they take memory.
func TestDecodeState_Bound(t *testing.T) {
	if st := decode(t, oneRun(maxMessages)); st.Pending() != maxMessages {
		t.Errorf("%d messages, want %d", st.Pending(), maxMessages)
	}
	halves := []byte{stateVersion, 0, 0, 0, 0, 2} // the second one exceeds the limit
	for range 2 {
		halves, _ = appendEntry(halves, &entry{first: 1, count: maxMessages/2 + 1, kind: kindWaiting, attempts: 1}, place{next: 1})
	}
	for what, blob := range map[string][]byte{"one run": seal([]byte{stateVersion, 0, 0, 0, 0, 1, 0, 0xc0, 0xb8, 2, 1, 1, 2}), "two runs": seal(halves)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeState(blob)
		runtime.ReadMemStats(&after)
		if core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s of more messages: got %v", what, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s of more messages allocated %d bytes before it was refused", what, n)
		}
	}
}

// TestAppendState_Bound: of more messages than a checkpoint may have, the lowest seqs are written, and all that leave.
func TestAppendState_Bound(t *testing.T) {
	entries := []entry{
		{first: 1, count: maxMessages, kind: kindWaiting, attempts: 1},
		{first: maxMessages + 1, count: 7, kind: kindTransferring, to: RetryQueue, attempts: 1, leaves: true},
		{first: maxMessages + 8, count: 9, kind: kindWaiting, attempts: 2},
	}
	f := fit(nil, &policyStates{}, nil, &(&State{}).done, entries)
	st := decode(t, f.blob)
	if f.level != cutShort || st.Pending() != maxMessages {
		t.Fatalf("%d messages at level %d, want %d", st.Pending(), f.level, maxMessages)
	}
	for seq, want := range map[core.Seq]kind{1: kindWaiting, maxMessages - 7: kindWaiting, maxMessages + 1: kindTransferring, maxMessages + 7: kindTransferring} {
		if e, there := st.messages[seq]; !there || e.kind != want || !holds(f.written, seq) {
			t.Errorf("seq %d is %+v, %v", seq, e, there)
		}
	}
	if holds(f.written, maxMessages-6) || holds(f.written, maxMessages+8) {
		t.Error("what was left out is taken for written")
	}
	if entries[0].count != maxMessages {
		t.Error("the entries of the caller were changed")
	}
}

// TestShare_HoldsTwiceAsMany: a share that has not read what it restored begins so many messages that the next owner
// restores twice as many as a share reads, at most.
func TestShare_HoldsTwiceAsMany(t *testing.T) {
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	s := g.AddTimers(extent(1), decode(t, oneRun(MaxOutstanding+MaxOutstanding/2)), start)
	seqs := make([]core.Seq, MaxOutstanding)
	for i := range seqs {
		seqs[i] = core.Seq(3*MaxOutstanding + i)
	}
	if err := s.OfferDue(dueRecords(nil, nil, seqs...), start); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range g.Take(1, Credit{Messages: 2 * MaxOutstanding, Bytes: 1 << 30}, start, nil) {
		n += int(r.Count)
	}
	if n != MaxOutstanding/2 || decode(t, save(s, start)).Pending() != 2*MaxOutstanding {
		t.Errorf("%d are begun beside %d that are not read, want %d", n, s.missing, MaxOutstanding/2)
	}
}
