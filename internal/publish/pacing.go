package publish

import "time"

const (
	// paceMore is by how much faster is sent than was stored lately: so a publisher finds out that there is more room.
	paceMore = 1.25
	// pacePiece is for how long a batch lasts at the pace, and paceSlack what may be made up for of a time in which
	// nothing was sent.
	pacePiece = 4 * time.Millisecond
	paceSlack = 10 * time.Millisecond
	// paceWait bounds the pause after a batch.
	paceWait = 50 * time.Millisecond
	// paceFor is how long after the last refusal. A host that wants longer pauses than paceBelow refuses all there is,
	// which no pace helps.
	paceFor   = 2 * time.Second
	paceBelow = 500 * time.Millisecond
	// paceDouble is after how long without a refusal it is twice as fast.
	paceDouble = 500 * time.Millisecond
	// paceLeast is the smallest target of a batch.
	paceLeast = 64 << 10
)

// pacing spreads the records that are sent to a host that throttles. A publisher that sends everything after each pause
// sends in bursts, as large as the pause is long, and all others at that host's stores wait for a burst. So the
// publisher sends evenly, at a little more than the rate that the host stored since its last refusal. The pace grows
// with time and ends when the host has refused nothing for a while. It has no clock: times are the publisher's.
type pacing struct {
	rate    float64 // bytes per nanosecond that the host stored; 0: as fast as it goes
	refused int64   // when it did last; 0: never
	stored  int     // bytes since
	next    int64   // when the next batch may be sent
	full    int     // bytes; a batch is full above it; 0: batchTarget
}

// throttled is that the host refused something and wants a pause.
func (p *pacing) throttled(now int64, pause time.Duration) {
	since := now - p.refused
	switch {
	case pause > paceBelow:
		*p = pacing{}
		return
	case p.refused == 0 || since > int64(paceFor):
		p.rate, p.next = 0, 0 // what came through since says nothing: the limit had saved up
	case since > 0:
		p.rate = max(float64(p.stored)/float64(since), p.rate/2)
	}
	p.refused, p.stored, p.full = now, 0, 0
	if p.rate > 0 {
		p.full = min(max(int(p.rate*paceMore*float64(pacePiece)), paceLeast), batchTarget)
	}
}

// sent is that a batch of so many bytes goes out now.
func (p *pacing) sent(now int64, bytes int) {
	if p.rate == 0 {
		return
	}
	calm := max(now-p.refused, 0) // the sender may have looked at the clock before
	if calm > int64(paceFor) {
		*p = pacing{}
		return
	}
	pace := p.rate * paceMore * (1 + float64(calm)/float64(paceDouble))
	wait := int64(min(float64(bytes)/pace, float64(paceWait)))
	p.next = min(max(p.next, now-int64(paceSlack))+wait, now+int64(paceWait))
}

// tooLate is that a record with that deadline has no time to wait: its answer takes some, too.
func (p *pacing) tooLate(deadline int64) bool { return deadline < p.next+int64(paceWait) }

// target is the size above which a batch is full.
func (p *pacing) target() int {
	if p.full == 0 {
		return batchTarget
	}
	return p.full
}
