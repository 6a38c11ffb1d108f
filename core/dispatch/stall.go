package dispatch

import (
	"math"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// When nothing a group hands out succeeds, the workers are to blame and not the messages: the group is stalled. Attempts that fail then are
// excused, so that an outage exhausts nothing; a few messages at a time probe whether it is over, with growing pauses; and one success
// ends it.
//
// Before it is stalled it is in doubt: the locks of one consumer that died with many messages look the same until another one acks. So it
// probes, and is stalled when a probe fails, too.
//
// A tail of poison looks different: it has failed before, while other messages succeeded. So a streak of failures counts only with
// first attempts in it. And as long as an outage lasts, first attempts go on failing, since some of the probes are such. When none has
// for many rounds, what is left may be poison after all: from then on attempts count again, a part of what waits at a time.
//
// An owner that finds many excused messages in what the one before saved takes the group for stalled until something succeeds.
const (
	stallMessages = 20              // distinct messages failed in a row …
	stallFirst    = 5               // … so many of them for the first time …
	stallAge      = time.Second     // … and for so long: acks may be on their way
	stallPatience = 5 * time.Second // a last attempt waits so long after the latest first one failed, if nothing succeeds
	stallProbes   = 4               // messages a stalled group hands out in one round
	stallRounds   = 15              // without the failure of a first attempt, until failures count again …
	stallPart     = 8               // … of this part of what waits in one round, if that is more than the probes, …
	stallHurry    = 8               // … with pauses of this part of the lock timeout
	stallPause    = time.Second
	maxDoubts     = 256         // probes that are remembered while in doubt
	maxStallPause = time.Minute // or the lock timeout, if that is shorter, but at least stallPause
)

// suspect is a message that failed since the last success.
type suspect struct {
	share *Share
	seq   core.Seq
	fails uint16
}

// streak is what failed since the group's last success.
//
//	suspects are distinct up to stallMessages; there are more only if first ≥ stallFirst
//	left, next and pause are of probes: used while in doubt or stalled
//	next > 0 while a round of probes is under way or awaited
type streak struct {
	suspects  []suspect
	first     int32     // failures of first attempts
	inherited int32     // messages of shares that were resumed, with excused attempts
	began     int64     // ns: the first failure
	fresh     int64     // ns: the latest failure of a first attempt
	probes    []deadRef // handed out while in doubt
	failed    bool      // one of these failed
	stalled   bool
	since     int64 // ns: when it stalled
	rounds    int32 // begun since a first attempt failed
	left      int   // messages of this round not handed out yet
	next      int64 // ns: when the next round begins; 0: when this one is begun
	pause     int64 // ns: after this round
}

// failing is the group's streak, made with the first failure: most groups never have one.
func (g *Group) failing() *streak {
	if g.streak == nil {
		g.streak = new(streak)
	}
	return g.streak
}

// strike notes the failure of a message's attempt.
func (s *Share) strike(seq core.Seq, m *message) {
	g := s.group
	k := g.failing()
	switch {
	case g.spec.NoSmartRetry:
	case !k.stalled:
		if m.attempts == 1 {
			k.first++
			k.fresh = g.now
		}
		if len(k.suspects) == 0 {
			k.began = g.now
		}
		if k.doubt() {
			k.failed = k.failed || slices.Contains(k.probes, deadRef{s, seq})
		}
		k.suspect(s, seq)
		if k.doubt() && k.pause == 0 {
			k.left, k.pause = stallProbes, int64(stallPause)
		}
		if k.decided(g.now) || k.doubt() && g.spec.MaxDeliveries == 1 { // there, each failure is the last
			g.stall()
		}
	default:
		if m.attempts == 1 {
			k.rounds = 0
		}
		if k.rounds < stallRounds {
			g.counters.Excused++
			s.excuse(seq, m, 1)
		}
	}
}

// suspect counts a failure of a message, if there is room.
func (k *streak) suspect(s *Share, seq core.Seq) {
	if k.doubt() { // all of these were in flight then: they are new, or fail once more
		if len(k.suspects) < MaxOutstanding {
			k.suspects = append(k.suspects, suspect{s, seq, 1})
		}
		return
	}
	for i := range k.suspects {
		if x := &k.suspects[i]; x.seq == seq && x.share == s {
			x.fails = saturate(x.fails)
			return
		}
	}
	if len(k.suspects) < stallMessages {
		k.suspects = append(k.suspects, suspect{s, seq, 1})
	}
}

// inherit goes on with a stall of the owner before.
func (g *Group) inherit() {
	if g.streak == nil || g.streak.inherited < stallMessages || g.spec.NoSmartRetry {
		return
	}
	if k := g.streak; !k.stalled {
		k.begin(g.now)
		g.counters.Stalls++
	}
}

// begin a stall, with probes at once.
func (k *streak) begin(now int64) {
	k.stalled, k.since = true, now
	k.left, k.next, k.pause = stallProbes, 0, int64(stallPause)
	k.probes = nil
}

// stall begins: the failures that led to it are excused, also where they were the last of their messages.
func (g *Group) stall() {
	k := g.streak
	k.begin(g.now)
	g.counters.Stalls++
	for _, x := range k.suspects {
		m := x.share.table.get(x.seq)
		if m == nil || x.share.gone || x.share.mayBeDead(x.seq, m) {
			continue
		}
		g.counters.Excused += uint64(x.fails)
		x.share.excuse(x.seq, m, x.fails)
		x.share.changed = true
		if (x.share.recalled(x.seq, m) || m.phase == blocked || m.phase == lone) && m.failure != Rejected && m.failure != Lapsed {
			x.share.judge(x.seq, m, 0)
			x.share.wake()
		}
	}
}

// succeeded ends the streak.
func (g *Group) succeeded() {
	k := g.streak
	if k == nil || len(k.suspects) == 0 && !k.stalled && k.inherited == 0 {
		return
	}
	clear(k.suspects)
	*k = streak{suspects: k.suspects[:0:min(cap(k.suspects), 2*stallMessages)]}
}

// doubt reports whether so much failed that it may be a stall.
func (k *streak) doubt() bool {
	return k != nil && !k.stalled && len(k.suspects) >= stallMessages && k.first >= stallFirst
}

// gathers reports whether what fails may be the beginning of a stall: more than one message did, and nothing succeeded.
func (k *streak) gathers() bool { return k != nil && !k.stalled && len(k.suspects) > 1 }

// decided reports whether the doubt has become a stall.
func (k *streak) decided(now int64) bool {
	return k.doubt() && k.failed && now >= k.began+int64(stallAge)
}

// probing reports whether only probes are handed out.
func (k *streak) probing() bool { return k != nil && k.stalled || k.doubt() }

// nextProbe is when the streak wants a tick next.
func (g *Group) nextProbe() (at int64, ok bool) {
	k := g.streak
	if k == nil {
		return 0, false
	}
	consider := func(t int64) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if k.probing() && k.next > 0 {
		consider(k.next)
	}
	switch {
	case k.doubt() && (k.failed || g.lastsWait() && g.now < k.began+int64(stallAge)):
		consider(k.began + int64(stallAge))
	case !k.probing() && g.lastsWait() && g.now < k.fresh+int64(stallPatience):
		consider(k.fresh + int64(stallPatience))
	}
	return at, ok
}

// shut reports whether nothing is handed out before the next round.
func (k *streak) shut() bool { return k.probing() && k.left == 0 }

// most is how many messages may be handed out.
func (k *streak) most() int {
	if k.probing() {
		return k.left
	}
	return math.MaxInt
}

// probed notes what was handed out.
func (g *Group) probed(runs []Run) {
	k := g.streak
	if len(runs) == 0 || !k.probing() {
		return
	}
	for _, r := range runs {
		k.left -= int(r.Count)
		for i := range core.Seq(r.Count) {
			if !k.stalled && len(k.probes) < maxDoubts {
				k.probes = append(k.probes, deadRef{r.Share, r.Base + i})
			}
		}
	}
	if k.next == 0 {
		k.next = g.now + k.pause
		k.pause = min(2*k.pause, int64(g.longestPause()))
	}
}

// longestPause between two rounds. When failures count again it is about poison, and needs no patience.
func (g *Group) longestPause() time.Duration {
	if g.streak.rounds >= stallRounds {
		return min(maxStallPause, max(g.spec.LockTimeout/stallHurry, stallPause))
	}
	return min(maxStallPause, max(g.spec.LockTimeout, stallPause))
}

// tick begins the next round when it is time.
func (g *Group) tickStall() {
	k := g.streak
	if k.decided(g.now) {
		g.stall()
	}
	g.resume()
	if !k.probing() || k.next == 0 || k.next > g.now {
		return
	}
	k.next = 0
	k.left = stallProbes
	if !k.stalled {
		return
	}
	if g.alone != nil && k.rounds < stallRounds {
		g.alone.began = g.now
	}
	if k.rounds++; k.rounds > stallRounds {
		k.rounds = stallRounds
		waiting := -g.inFlight
		for _, s := range g.shares {
			waiting += s.outstanding()
		}
		k.left = max(k.left, waiting/stallPart)
	}
}

// Stalled reports since when nothing has succeeded; ok is false when the group is not stalled.
func (g *Group) Stalled() (since time.Time, ok bool) {
	if g.streak == nil || !g.streak.stalled {
		return time.Time{}, false
	}
	return g.instant(g.streak.since), true
}

// undecided reports whether failures may be the beginning of a stall: there is something that would tell, messages in flight or such as
// were never tried, or it may come yet. Then last attempts wait.
func (g *Group) undecided() bool {
	k := g.streak
	switch {
	case k == nil || k.stalled || k.first == 0:
		return false
	case k.doubt(): // from then on the failure of a probe decides
		return g.now < k.began+int64(stallAge)
	case g.now < k.fresh+int64(stallPatience):
		return true
	case g.inFlight > 0 && len(k.suspects) < stallMessages && len(k.suspects)+g.inFlight >= stallMessages:
		return true
	}
	for _, s := range g.shares {
		if !s.returning && s.canBegin() {
			return true
		}
	}
	return false
}

// postpone has a last attempt wait.
func (s *Share) postpone(seq core.Seq) {
	s.lasts.push(seq)
	s.group.postponed++
}

// lastsWait reports whether last attempts may wait for the group to be decided.
func (g *Group) lastsWait() bool { return g.postponed > 0 || g.alone != nil }

// resume lets last attempts go on that wait for nothing any more.
func (g *Group) resume() {
	if g.postponed == 0 || g.undecided() {
		return
	}
	for _, s := range g.shares {
		for _, seq := range s.lasts.all() {
			s.retries.push(seq)
		}
		s.forgetLasts()
		s.wake()
	}
}

func (s *Share) forgetLasts() {
	s.group.postponed -= s.lasts.len()
	s.lasts = queue[core.Seq]{}
}

// isLast reports whether a failed message has one attempt left.
func (s *Share) isLast(seq core.Seq, m *message) bool {
	most := s.group.spec.MaxDeliveries
	return m.attempts > 0 && most != core.UnlimitedDeliveries && int(m.attempts)-s.excuses(seq) == most-1
}

// excuse has n failed attempts of a message not count.
func (s *Share) excuse(seq core.Seq, m *message, n uint16) {
	if s.excused == nil {
		s.excused = map[core.Seq]uint16{}
	}
	s.excused[seq] = uint16(min(uint64(s.excused[seq])+uint64(n), uint64(m.attempts)))
}

// excuses are how many attempts of a message do not count.
func (s *Share) excuses(seq core.Seq) int {
	if len(s.excused) == 0 {
		return 0
	}
	return int(s.excused[seq])
}
