package dispatch

import "math"

// pause stops the deliveries of a group while nobody takes its messages. It is on from the call of Want(false) to the
// next Want(true). While it is on nothing is handed out, and retries wait. Checkpoints do not count their next attempt
// then, so a crash of the owner costs no message an attempt. It learns nothing from outcomes, has no deadline, and is
// not saved: whoever owns the group says anew whether somebody takes messages.
//
// Its scope is the group.
type pause bool

// admit is how many messages may be handed out now.
func (p pause) admit(scope, int64) int {
	if p {
		return 0
	}
	return math.MaxInt
}

// nextDeadline is never.
func (p pause) nextDeadline(int64) (at int64, ok bool) { return 0, false }

// Want says how many messages all consumers together would take now, and whether there are consumers at all: at first
// there are, and they take any number. Without consumers the group is paused: Take hands out nothing, retries wait, and
// checkpoints count no attempt that was not made, so a crash of the owner costs them none. Retries that were claimed
// before are claimed again later.
func (g *Group) Want(credit int, anyone bool) {
	g.credit = credit
	if bool(g.paused) == anyone {
		g.paused = pause(!anyone)
		for _, s := range g.shares {
			if s.count[ready]+s.count[unsaved] > 0 {
				s.change()
			}
		}
		g.chooseNext()
	}
	g.claimRetries()
}
