package extentlog

import "time"

// Bounds of a round: a fence waits for the rounds under way and goes with the next, while its caller waits for 3
// seconds at most. And a round that takes longer than HangsAt would make a slow disk look like one that hangs.
const (
	roundTime  = 500 * time.Millisecond
	leastRound = 1 << 20
	firstRound = 4 << 20
)

// pace bounds the bytes of a round by what the disk wrote lately, so that a round is durable within about roundTime.
type pace struct {
	most int
	now  int
}

func newPace(most int) pace { return pace{most: most, now: min(firstRound, most)} }

// settled takes a round into account. One that was neither long nor large says nothing of the disk.
func (p *pace) settled(bytes int, took time.Duration) {
	if took <= roundTime && bytes < p.now/2 {
		return
	}
	fits := float64(bytes) * float64(roundTime) / float64(max(took, time.Microsecond))
	p.now = int(min(max(fits, leastRound), float64(2*p.now), float64(p.most)))
}
