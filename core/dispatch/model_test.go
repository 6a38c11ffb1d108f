package dispatch

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// counted is a buffer that must be released exactly once, after which its bytes are somebody else's.
type counted struct {
	released int
	bytes    []byte
}

func (c *counted) Release() {
	c.released++
	clear(c.bytes)
}

// payload is what the record of seq holds: of different sizes, never empty.
func payload(seq core.Seq) []byte {
	return bytes.Repeat([]byte{byte(seq), byte(seq >> 8)}, 8+int(seq%7))
}

func records(base core.Seq, n int, buffer Buffer) Records {
	r := Records{Base: base, Offsets: []uint32{0}, Enqueued: int64(base) * 10, Buffer: buffer}
	for i := range n {
		r.Bytes = append(r.Bytes, payload(base+core.Seq(i))...)
		r.Offsets = append(r.Offsets, uint32(len(r.Bytes)))
	}
	return r
}

// fate is what the model knows of one message.
type fate struct {
	attempts  int       // of the highest delivery this owner, or a durable checkpoint, knows
	locked    bool      // until …
	until     time.Time // … or not before
	over      bool      // acknowledged, dead-lettered or dropped
	dying     bool
	blocked   bool
	drops     bool // at until, unless the breaker opens
	rejected  bool
	lent      bool      // it is being appended to the dead letter queue
	letter    bool      // it may be there already
	leaves    bool      // for the retry queue, at until
	away      bool      // it may be there already
	replaced  bool      // its metadata are
	displaced bool      // it leaves although it could wait here, and the retry queue has not refused it
	begun     bool      // it was handed out, as far as the owner knows
	session   SessionID // that got it last from this owner
	unsure    bool      // its lock is of an owner that died
	spent     int       // attempts that did not count for that
	appended  time.Time // as its batch says
	expire    time.Time // zero: never
}

func (f *fate) lapsed(now time.Time) bool { return !f.expire.IsZero() && !now.Before(f.expire) }

// machine drives one group with one extent against a model, with crashes.
type machine struct {
	g          *Group
	s          *Share
	spec       core.GroupSpec
	now        time.Time
	fates      map[core.Seq]*fate
	written    core.Seq // of the extent
	durable    []byte   // last saved checkpoint
	buffers    []*counted
	unsent     []byte // checkpoint taken, not yet saved
	token      uint64
	lent       []Transfer               // yielded, not answered
	parks      []Transfer               // the same
	expires    map[core.Seq]time.Time   // of a log, of what was offered ever
	timers     map[core.Seq]timerTimes  // of a timer extent, of what was offered ever; nil: a log
	nacks      map[SessionID]int        // in a row
	paces      map[SessionID]*paceModel // of throttled sessions
	notCounted map[core.Seq]uint16      // attempts, as of the last look
	open       bool                     // the breaker, then
	skipped    uint64                   // by this owner
	lapsed     uint64                   // the same
	cancels    cancels
	dead       map[core.Seq]bool // the dead letter queue has it, whoever appended it
	mostFailed int               // of the group
	allowed    int               // failed messages in memory
	waits      map[core.Seq]bool // what could be displaced, as of the last look
	looker     looker
	openings   uint64 // of breakers elsewhere, so far
}

func (m *machine) fate(seq core.Seq) *fate {
	if m.fates[seq] == nil {
		m.fates[seq] = &fate{}
	}
	return m.fates[seq]
}

func (m *machine) offer(t *rapid.T) {
	if !m.s.WantsMore() {
		t.Skip("full")
	}
	if m.timers != nil {
		m.offerDue(t)
		return
	}
	from := m.s.ReadFrom()
	base := from - min(from-1, core.Seq(rapid.IntRange(0, 3).Draw(t, "overlap")))
	b := &counted{}
	m.buffers = append(m.buffers, b)
	n := rapid.IntRange(1, 40).Draw(t, "records")
	r := records(base, n, b)
	b.bytes = r.Bytes
	appended := m.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * time.Second)
	r.Enqueued = appended.UnixMicro()
	some := rapid.Bool().Draw(t, "some expire")
	for seq := from; seq < base+core.Seq(n); seq++ {
		f := m.fate(seq)
		at, known := m.expires[seq]
		if !known && some && rapid.Bool().Draw(t, "expires") {
			at = m.now.Add(time.Duration(rapid.IntRange(-5, 20).Draw(t, "left")) * time.Second)
		}
		f.appended, f.expire, m.expires[seq] = appended, at, at
		if !at.IsZero() {
			if r.Expire == nil {
				r.Expire = make([]int64, n)
			}
			r.Expire[seq-base] = at.UnixMilli()
		}
	}
	if err := m.s.Offer(r, m.now); err != nil {
		t.Fatalf("offer: %v", err)
	}
	m.written = max(m.written, base+core.Seq(n)-1)
	gap := &counted{}
	if err := m.s.Offer(records(m.s.ReadFrom()+1, 1, gap), m.now); core.CodeOf(err) != core.CodeGap || gap.released != 0 {
		t.Fatalf("a gap: got %v, released %d times", err, gap.released)
	}
}

func (m *machine) take(t *rapid.T) {
	credit := Credit{Messages: rapid.IntRange(0, 30).Draw(t, "messages"), Bytes: rapid.IntRange(0, 500).Draw(t, "bytes"), Largest: rapid.SampledFrom([]int{0, 100, 300, AnySize}).Draw(t, "largest")}
	m.hand(t, SessionID(rapid.IntRange(7, 8).Draw(t, "session")), credit)
}

// hand checks what a session is handed out.
func (m *machine) hand(t *rapid.T, session SessionID, credit Credit) {
	idle := !m.g.Ready()
	probes := m.g.breaker.admit(groupScope, 0)
	runs := m.g.Take(session, credit, m.now, nil)
	if idle && len(runs) > 0 {
		t.Fatalf("not ready, but took %v", runs)
	}
	n, size := 0, 0
	for _, r := range runs {
		n += int(r.Count)
		size += len(r.Bytes)
		rest := r.Bytes
		for i := range r.Count {
			seq := r.Base + core.Seq(i)
			p := payload(seq)
			if !bytes.HasPrefix(rest, p) {
				t.Fatalf("seq %d has the wrong bytes", seq)
			}
			rest = rest[len(p):]
			m.delivered(t, seq, int(r.Attempt))
			m.fate(seq).session = session
		}
		if len(rest) > 0 {
			t.Fatalf("run has %d bytes too many", len(rest))
		}
	}
	if n > credit.Messages || size > credit.Bytes && !(size <= credit.Largest && n == 1) {
		t.Fatalf("took %d messages, %d bytes for %+v", n, size, credit)
	}
	if n > probes {
		t.Fatalf("an open breaker handed out %d messages, %d probes are left", n, probes)
	}
	m.pace(t, session, n)
}

// counted are the attempts of a message that count.
func (m *machine) counted(seq core.Seq) int { return m.fate(seq).attempts - m.s.notCounted(seq) }

// allNotCounted are how many attempts of each message do not count.
func (s *Share) allNotCounted() map[core.Seq]uint16 {
	out := map[core.Seq]uint16{}
	s.table.eachNote(func(seq core.Seq, _ *message, x note) {
		if x.uncounted.attempts > 0 {
			out[seq] = x.uncounted.attempts
		}
	})
	return out
}

// uncounted checks that failures do not count only while the breaker is open, or when the failure of a probe closes one
// with a percentage, and takes over which messages that saved, and which exhausted ones it let drop at once.
func (m *machine) uncounted(t *rapid.T) {
	state, since := m.g.Breaker()
	opened := state != BreakerClosed && !m.open
	if kept := string(m.g.breaker.save()); kept != m.g.policies[PolicyBreaker-1] {
		t.Fatalf("checkpoints tell of a breaker %x, it is %x", m.g.policies[PolicyBreaker-1], kept)
	}
	for seq, n := range m.s.allNotCounted() {
		f := m.fate(seq)
		if n == m.notCounted[seq] {
			continue
		}
		if state == BreakerClosed && !m.open || m.spec.Breaker == core.BreakerOff || since.After(m.now) {
			t.Fatalf("attempts of seq %d do not count, the breaker is %s, and set to %d", seq, state, m.spec.Breaker)
		}
		if int(n) > f.attempts {
			t.Fatalf("%d of %d attempts of seq %d do not count", n, f.attempts, seq)
		}
		expired := m.s.table.get(seq).failure == Expired
		if (f.dying || f.blocked || f.drops) && !f.rejected && !expired && m.counted(seq) < m.spec.MaxDeliveries {
			f.dying, f.blocked, f.drops, f.until, f.leaves = false, false, false, time.Time{}, f.replaced
		}
	}
	for seq, f := range m.fates { // one attempt less that counts does not save those of more than the limit
		if f.drops && opened && m.s.done.Done(seq) && f.attempts-int(m.notCounted[seq]) > m.spec.MaxDeliveries {
			f.drops, f.over = false, true
		}
	}
	m.notCounted, m.open = m.s.allNotCounted(), state != BreakerClosed
}

func (m *machine) delivered(t *rapid.T, seq core.Seq, attempt int) {
	f := m.fate(seq)
	switch {
	case f.over:
		t.Fatalf("seq %d is over and delivered again", seq)
	case m.dead[seq]:
		t.Fatalf("seq %d is a dead letter and delivered again", seq)
	case f.blocked:
		t.Fatalf("seq %d is blocked and delivered again", seq)
	case f.dying || f.drops:
		t.Fatalf("seq %d had its last attempt and is delivered again", seq)
	case !f.begun && m.now.Before(m.appended(seq).Add(m.spec.Delay)):
		t.Fatalf("seq %d is delivered %s after it was appended, the delay is %s", seq, m.now.Sub(m.appended(seq)), m.spec.Delay)
	case !f.begun && m.tooOld(f):
		t.Fatalf("seq %d is delivered %s after it was appended, older than %s is skipped", seq, m.now.Sub(f.appended), m.spec.SkipOlder)
	case m.cancels.withheld[seq]:
		t.Fatalf("seq %d is withheld and delivered", seq)
	case f.lapsed(m.now):
		t.Fatalf("seq %d is delivered %s after it expired", seq, m.now.Sub(f.expire))
	case f.leaves && (f.away || f.replaced || f.displaced):
		t.Fatalf("seq %d is delivered from here, and may be in the retry queue: %+v", seq, *f)
	case m.now.Before(f.until):
		t.Fatalf("seq %d is delivered %s early", seq, f.until.Sub(m.now))
	case attempt != f.attempts+1:
		t.Fatalf("seq %d is delivered as attempt %d after %d", seq, attempt, f.attempts)
	case m.counted(seq) >= m.spec.MaxDeliveries:
		t.Fatalf("seq %d is delivered as attempt %d of %d", seq, attempt, m.spec.MaxDeliveries)
	}
	if attempt > 1 {
		st, err := DecodeState(m.durable)
		if err != nil || int(st.messages[seq].attempts) < attempt {
			t.Fatalf("seq %d is delivered as attempt %d, durable are %d (%v)", seq, attempt, st.messages[seq].attempts, err)
		}
	}
	f.attempts, f.locked, f.until, f.begun, f.leaves = attempt, true, m.now.Add(m.spec.LockTimeout), true, false
}

// appended is when a message was.
func (m *machine) appended(seq core.Seq) time.Time {
	if m.timers != nil {
		return m.timers[seq].enqueued
	}
	return m.fate(seq).appended
}

// tooOld reports whether the group skips a message, if it was never handed out.
func (m *machine) tooOld(f *fate) bool {
	return m.spec.SkipOlder > 0 && m.now.Sub(f.appended) > m.spec.SkipOlder
}

func (m *machine) tick(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms")) * time.Millisecond)
	leave := m.toRetry()
	m.g.Tick(m.now)
	m.refused(leave)
	m.lowered()
	for seq, f := range m.fates {
		if f.locked && !f.until.After(m.now) {
			m.expired(seq)
		}
		over := !f.until.After(m.now) || f.until.Add(-routes[DeadLetterQueue].patience).UnixNano() < m.g.succeededAt
		if f.drops && over && m.s.done.Done(seq) {
			f.drops, f.over = false, true
		}
	}
	m.uncounted(t)
	m.displacedNow(t)
	if at, ok := m.g.NextDeadline(); ok && !at.After(m.now) {
		t.Fatalf("after a tick at %s the next deadline is %s", m.now, at)
	}
}

func (m *machine) update(t *rapid.T) {
	m.spec.MaxDeliveries = rapid.IntRange(1, 4).Draw(t, "max")
	m.spec.Delay, m.spec.SkipOlder = delays.Draw(t, "group delay"), ages.Draw(t, "skip older")
	m.spec.Exhausted, m.spec.Expired = policies.Draw(t, "exhausted"), ends.Draw(t, "expired")
	m.spec.Breaker, m.spec.NoNackThrottle = rapid.SampledFrom([]int{core.BreakerOff, 1, 50, core.BreakerAlways}).Draw(t, "breaker"), rapid.Bool().Draw(t, "no nack throttle")
	if m.spec.NoNackThrottle {
		clear(m.nacks)
		clear(m.paces)
	}
	unwanted, expired := m.unwanted(), make(map[core.Seq]bool)
	for _, seq := range unwanted {
		expired[seq] = m.s.table.get(seq).failure == Expired
	}
	m.takenBackNow()
	m.g.Update(m.spec, m.now)
	for _, seq := range unwanted {
		f := m.fate(seq)
		f.dying = false
		if f.over = expired[seq]; !f.over {
			m.failed(seq, time.Time{}, f.rejected)
		}
	}
	for seq, f := range m.fates {
		if slices.Contains(unwanted, seq) {
			continue
		}
		blocked := f.blocked
		f.blocked, f.drops = false, false
		switch rejected := blocked && f.rejected; {
		case (m.counted(seq) >= m.spec.MaxDeliveries || rejected) && !f.locked && !f.over && !f.dying && !f.leaves:
			m.failed(seq, time.Time{}, rejected)
		case blocked:
			f.leaves = f.replaced
		}
	}
	m.displacedNow(t)
	m.allowed = max(m.mostFailed, m.s.failedMessages())
}

var delays = rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Second, 15 * time.Second})

var policies = rapid.SampledFrom([]core.Exhausted{core.ExhaustedDLQ, core.ExhaustedDrop, core.ExhaustedBlock})

var ends = rapid.SampledFrom([]core.Expired{core.ExpiredDrop, core.ExpiredDLQ})

var ages = rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Second, 25 * time.Second})

func TestGroup_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{now: time.Unix(1_700_000_000, 0), expires: map[core.Seq]time.Time{}, dead: map[core.Seq]bool{}, spec: core.GroupSpec{
			LockTimeout: 10 * time.Second, MaxDeliveries: rapid.IntRange(1, 4).Draw(t, "max"), Delay: delays.Draw(t, "group delay"), SkipOlder: ages.Draw(t, "skip older"),
			Exhausted: policies.Draw(t, "exhausted"), Expired: ends.Draw(t, "expired"),
		}.WithDefaults(), mostFailed: rapid.SampledFrom([]int{1, 3, 8, MaxFailed}).Draw(t, "most failed")}
		if rapid.Bool().Draw(t, "timers") {
			m.timers = make(map[core.Seq]timerTimes)
		}
		m.start(t)
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "offer": m.offer, "take": m.take, "take again": m.take, "ack": m.ack, "proven": m.ackProven, "nack": m.nack,
			"reject": m.reject, "extend": m.extend, "return": m.giveBack, "tick": m.tick, "update": m.update, "die": m.die, "buried": m.buried,
			"later": m.later, "park": m.park, "park again": m.park, "parked": m.parked, "checkpoint": m.checkpoint, "slow checkpoint": m.slowCheckpoint, "saved": m.saved, "crash": m.crash,
			"want": m.want, "rebuild": m.rebuild, "outage": m.outage, "elsewhere": m.elsewhere, "withhold": m.withhold, "follow": m.follow,
		})
		m.drain(t)
	})
}
