package dispatch

import (
	"math"
	"time"
)

// Messages that were merged into the group, dead letters that get another chance, bypass its delay and its skipping of older ones. While there
// is something else to hand out they are at most one in mergedPart of it: poison must not starve fresh work.
const (
	mergedPart = 4
	// mergedTurn is what a share of them may hand out before others' turns.
	mergedTurn = 64
)

// Merged makes s a share of merged messages, before anything is offered to it; rate bounds how many per second are handed out for the first
// time, 0: no bound.
func (s *Share) Merged(rate int) {
	s.merged, s.rate = true, int32(min(rate, math.MaxInt32))
}

// IsMerged reports whether the share's messages were merged into the group.
func (s *Share) IsMerged() bool { return s.merged }

// nextInTurn takes the share out that has its turn, nil when none is in turn. Merged ones wait while they owe others.
func (g *Group) nextInTurn() (*Share, turn) {
	g.holdFirsts()
	t := g.turns
	if g.mergedTurns.waits() && (!g.turns.waits() || g.owed <= 0) {
		t = g.mergedTurns
	}
	if !t.waits() {
		return nil, firstTurn
	}
	return t.next()
}

// handedOf counts the messages that a share handed out in its turn.
func (g *Group) handedOf(s *Share, kind turn, n int) {
	s.turns().handed(kind, n)
	g.countMerged(s, n)
}

// countMerged counts n messages of a share: each merged one owes the others so many that it is its part of all.
func (g *Group) countMerged(s *Share, n int) {
	switch {
	case !s.merged:
		g.owed = max(g.owed-int32(n), 0)
	case g.turns.waits():
		g.owed += (mergedPart - 1) * int32(n)
	}
}

// turnOf bounds the messages of a share's turn: while both kinds wait, a merged one has a short turn, and the others until nothing is owed.
func (g *Group) turnOf(s *Share, kind turn, most int) int {
	switch {
	case s.merged && g.turns.waits():
		most = min(most, mergedTurn)
	case !s.merged && g.mergedTurns.waits() && g.owed > 0:
		most = min(most, int(g.owed))
	}
	if kind == firstTurn {
		most = min(most, g.retries.admit(firstsScope, g.now))
	}
	return s.turns().admit(kind, most)
}

// A share with a rate hands out a tenth of a second's messages at once, at most.
const burstsPerSecond = 10

// leastPause is between two times at which the rate lets messages go, when there are many.
const leastPause = 10 * time.Millisecond

// allowed is how many messages the rate lets go now for the first time.
func (s *Share) allowed() int {
	if s.group.now < s.paced {
		return 0
	}
	return int(min((s.group.now-s.paced)/s.interval()+1, s.burst()))
}

// spent counts n that went.
func (s *Share) spent(n int) {
	s.paced = max(s.paced, s.group.now-(s.burst()-1)*s.interval()) + int64(n)*s.interval()
}

// resumes is when the rate lets the next ones go, ns; 0: now.
func (s *Share) resumes() int64 {
	if s.rate == 0 || s.supply.len() == 0 || s.allowed() > 0 {
		return 0
	}
	together := min(int64(leastPause)/s.interval(), s.burst()-1)
	return s.paced + max(together, 0)*s.interval()
}

func (s *Share) interval() int64 { return max(int64(time.Second)/int64(s.rate), 1) }
func (s *Share) burst() int64    { return max(int64(s.rate)/burstsPerSecond, 1) }
