package dispatch

import "time"

// elsewhere is what a breaker knows of those of the group on other hosts. A host with a handful of the group's messages
// never sees enough failures to open its own. So the first failure here is enough while a breaker is open elsewhere:
// each opening there opens this one once at most. Something must have failed here that still may be taken back, and
// nothing succeeded since, nor within the second before now. Openings have numbers, which rise in the order in which
// this host heard of them; no clock of another host matters. See adr/0076.
//
// While one lasts elsewhere, failures do not count here after breakerRounds either: there first attempts fail. Others
// hear of a breaker only while that is so there by its own outcomes, and never of one that followed: so two of poison
// alone do not keep each other from counting, and an opening does not come back to where it began.
type elsewhere struct {
	lasts    uint64 // the newest opening that lasts there; 0: none does
	spent    uint64 // openings up to this one do not open it any more
	failedAt int64  // ns: when a message failed here last, or when another owner's was resumed
	followed bool   // it is open only because another one is
}

// spend has the openings that last elsewhere not open it any more: it is open already.
func (x *elsewhere) spend() { x.spent = max(x.spent, x.lasts) }

// hear notes the newest opening that lasts elsewhere; 0: none does. led is as that of outcome.
func (b *breaker) hear(opening uint64, now int64) (led []failing) {
	if opening > 0 && b.counting() {
		b.size = breakerProbes // as when a first attempt fails here
	}
	if b.lasts = opening; b.open {
		b.spend()
	}
	return b.follow(now)
}

// mayFollow reports whether an opening elsewhere opens it, once nothing has succeeded for breakerUsual.
func (b *breaker) mayFollow(now int64) bool {
	return b != nil && !b.open && b.percent > 0 && b.row > 0 && b.lasts > b.spent && now-b.failedAt <= int64(routes[DeadLetterQueue].patience)
}

// follow opens it, if one is open elsewhere and it is time. led is as that of outcome.
func (b *breaker) follow(now int64) (led []failing) {
	if !b.mayFollow(now) || now-b.worked < int64(breakerUsual) {
		return nil
	}
	led = b.latest[len(b.latest)-int(b.row):]
	b.begin(now)
	b.followed = true
	return led
}

// Elsewhere tells of the newest opening of the group's breaker on another host that lasts; 0: none does. Numbers rise
// with each opening that this host hears of.
func (g *Group) Elsewhere(opening uint64, now time.Time) {
	g.at(now)
	if g.breaker == nil && opening == 0 {
		return
	}
	g.makeBreaker(g.breakerPercent())
	if led := g.breaker.hear(opening, g.now); led != nil {
		g.opened(led)
	}
}

// endFollowing closes a breaker that followed one elsewhere once that has ended and nothing is here that it keeps: else
// it would be open until a message comes.
func (g *Group) endFollowing() {
	if b := g.breaker; !b.isOpen() || !b.followed || b.lasts > 0 {
		return
	}
	if !g.keeps() {
		g.breaker.close()
	}
}

// keeps reports whether a message is here that was delivered and is not at its end.
func (g *Group) keeps() bool {
	for _, s := range g.shares {
		if s.table.n > s.of(blocked) {
			return true
		}
	}
	return false
}

// tells reports whether other hosts may hear of it.
func (b *breaker) tells() bool { return b.isOpen() && !b.followed && b.rounds < breakerRounds }

// toldUntil is when others hear of it no more unless something is in flight; never, when that has passed or they do not
// hear of it.
func (b *breaker) toldUntil(now int64) int64 {
	if !b.tells() || now > b.failedAt+breakerRounds*b.longest {
		return never
	}
	return b.failedAt + breakerRounds*b.longest + 1
}

// Opening is which opening of the breaker other hosts of the group are to hear of: it lasts, began by what failed here
// or in the shares that are here now, and first attempts failed in its latest breakerRounds. While nothing is handed
// out, for lack of messages or of consumers, the rounds do not go on, and nothing would ever close it: then it is none
// after the time of as many. 0: none. Each has another number.
func (g *Group) Opening() uint64 {
	b := g.breaker
	if !b.tells() || b.toldUntil(g.now) == never && g.inFlight == 0 {
		return 0
	}
	return g.counters.Opened
}
