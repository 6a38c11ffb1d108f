package client

import (
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// settledInOrder decodes what an outbox sends: one entry for each ack, nack, and extend.
func settledInOrder(t *testing.T, sent []byte) (verbs []wire.FrameType, seqs []core.Seq) {
	t.Helper()
	add := func(verb wire.FrameType, seq core.Seq) { verbs, seqs = append(verbs, verb), append(seqs, seq) }
	for len(sent) > 0 {
		f, rest, err := wire.NextFrame(sent)
		if err != nil {
			t.Fatal(err)
		}
		sent = rest
		var settled wire.Settled
		var nack wire.Nack
		var extend wire.Extend
		switch f.Type {
		case wire.TypeAck:
			if err := settled.Decode(f.Body); err != nil {
				t.Fatal(err)
			}
			for _, r := range settled.Runs {
				for i := range r.Count {
					add(f.Type, r.Base+core.Seq(i))
				}
			}
		case wire.TypeNack:
			if err := nack.Decode(f.Body); err != nil {
				t.Fatal(err)
			}
			add(f.Type, nack.Seq)
		case wire.TypeExtend:
			if err := extend.Decode(f.Body); err != nil {
				t.Fatal(err)
			}
			add(f.Type, extend.Seq)
		}
	}
	return verbs, seqs
}

func nackOf(o *outbox, seq core.Seq) {
	n := wire.Nack{Handle: 1, Seq: seq, Attempt: 1}
	o.frame(wire.TypeNack, n.Append)
}

// TestOutbox_FewNacksGoAheadOfAcks settles 500 deliveries during one write, of which every fifth failed: the host must
// not see many failures in a row, as if nothing succeeded.
func TestOutbox_FewNacksGoAheadOfAcks(t *testing.T) {
	o := newOutbox()
	for round := range 2 { // the second one uses the memory of the first
		for seq := core.Seq(1); seq <= 500; seq++ {
			if seq%5 == 0 {
				nackOf(o, seq)
			} else {
				o.ack(1, seq, 1)
			}
		}
		sent, _ := o.take(nil, 0)
		verbs, seqs := settledInOrder(t, sent)
		row, longest := 0, 0
		seen := make(map[core.Seq]bool)
		for i, verb := range verbs {
			if row++; verb == wire.TypeAck {
				row = 0
			}
			longest = max(longest, row)
			if seen[seqs[i]] {
				t.Errorf("round %d: %d is settled twice", round, seqs[i])
			}
			seen[seqs[i]] = true
		}
		if len(seen) != 500 {
			t.Errorf("round %d: %d deliveries are settled, want 500", round, len(seen))
		}
		if longest > 2*framesAhead {
			t.Errorf("round %d: %d nacks are sent in a row, want at most %d", round, longest, 2*framesAhead)
		}
	}
}

// TestOutbox_ExtendGoesBeforeItsAck acks a delivery that follows an earlier ack, after its lock was extended.
func TestOutbox_ExtendGoesBeforeItsAck(t *testing.T) {
	o := newOutbox()
	for seq := core.Seq(100); seq < 100+framesAhead; seq++ {
		nackOf(o, seq)
	}
	o.ack(1, 1, 1)
	nackOf(o, 200)
	extend := wire.Extend{Handle: 1, Seq: 2, Attempt: 1, Millis: 5}
	o.frame(wire.TypeExtend, extend.Append)
	o.ack(1, 2, 1)
	sent, _ := o.take(nil, 0)
	verbs, seqs := settledInOrder(t, sent)
	at := map[wire.FrameType]int{}
	for i, verb := range verbs {
		if seqs[i] == 2 {
			at[verb] = i
		}
	}
	if at[wire.TypeExtend] == 0 || at[wire.TypeExtend] > at[wire.TypeAck] {
		t.Errorf("sent %v of %v; want the extend of 2 before its ack", verbs, seqs)
	}
}
