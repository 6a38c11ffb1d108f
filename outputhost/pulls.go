package outputhost

import "slices"

// pulls are the unary pulls of a group that wait for messages. They stand in line, and are woken one at a time: a pull
// that takes messages, or that ends after it was woken, has the group pumped, which wakes the next one. So a message
// costs the same, however many pulls wait. The group's mutex's; a nil one has no pulls.
type pulls struct {
	most  map[chan struct{}]int // how many messages each takes
	wants int                   // the sum of these
	line  []chan struct{}       // those that were not woken since they looked last, the next one first
}

func (x *pulls) number() int {
	if x == nil {
		return 0
	}
	return len(x.most)
}

// joinPullLocked adds a pull that is woken by a channel, at the end of the line.
func (g *group) joinPullLocked(wake chan struct{}, most int) {
	if g.mu.pulls == nil {
		g.mu.pulls = &pulls{most: make(map[chan struct{}]int)}
	}
	g.mu.pulls.most[wake] = most
	g.mu.pulls.wants += most
	g.mu.pulls.line = append(g.mu.pulls.line, wake)
}

// again has a pull that was woken keep its turn, as it looks again.
func (x *pulls) again(wake chan struct{}) {
	if !slices.Contains(x.line, wake) {
		x.line = slices.Insert(x.line, 0, wake)
	}
}

// leave forgets a pull, and reports whether it was woken since it looked last: then the turn is another one's.
func (x *pulls) leave(wake chan struct{}) (woken bool) {
	x.wants -= x.most[wake]
	delete(x.most, wake)
	i := slices.Index(x.line, wake)
	if i >= 0 {
		x.line = slices.Delete(x.line, i, i+1)
	}
	return i < 0
}

// wakeNext wakes the pull whose turn it is.
func (x *pulls) wakeNext() {
	if len(x.line) > 0 {
		poke(x.line[0])
		x.line = slices.Delete(x.line, 0, 1)
	}
}

// wakeAll wakes all pulls, since something else than messages has come.
func (x *pulls) wakeAll() {
	if x == nil {
		return
	}
	for wake := range x.most {
		poke(wake)
	}
}
