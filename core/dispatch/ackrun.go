package dispatch

import "github.com/columbamq/columba/core"

// ackTogether settles the messages from seq on, below end, that were handed out together and only once: they are in
// flight in their first attempt, and have the session and the batch of seq. All of them are in c. It answers how many
// they are. Most acks are of such runs, and the counts of the share and the group change once for a run.
func (s *Share) ackTogether(c *chunk, seq, end core.Seq, attempt uint16) int {
	at := seq & chunkMask
	run := c.messages[at : at+end-seq]
	first := run[0]
	if b := first.batch; attempt != 1 || b == nil || b.due != nil || s.table.noted > 0 {
		return 0
	}
	n := 0
	for n < len(run) && run[n].batch == first.batch && run[n].session == first.session && run[n].phase == inFlight && run[n].attempts == 1 {
		n++
	}
	if n == 0 {
		return 0
	}
	clear(run[:n])
	c.live &^= (1<<n - 1) << at
	s.table.n -= n
	s.count[inFlight] -= int32(n)
	s.flying(&first, -n)
	s.group.acked(first.session)
	i := int(seq - first.batch.Base)
	s.unref(first.batch, n, int(first.batch.Offsets[i+n]-first.batch.Offsets[i]))
	return n
}
