package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// mixed is a group with a backlog that never ends, of whose messages most fail at each attempt. Its consumers take some
// time for each message, one after another.
type mixed struct {
	t       *testing.T
	g       *Group
	log     *Share
	back    *Share // of the retry queue
	retries []parkedThere
	coming  map[int64][]core.Seq // of these, not due yet, by 10 ms
	due     []core.Seq           // the others, not offered yet
	bad     int                  // of 100 messages
	now     time.Time

	good, dead, firsts, all int
	most                    int           // messages in memory
	gap                     time.Duration // the longest without a good message
	last                    time.Time     // when the last one was acked
}

const mixedStep = 10 * time.Millisecond

// hand is a consumer: a queue of deliveries, of which it handles one at a time.
type hand struct {
	id    SessionID
	holds []grip
	free  time.Time
}

func (m *mixed) fails(s *Share, seq core.Seq) bool {
	if s == m.back {
		seq = m.retries[seq-1].Origin.Seq
	}
	return rand.New(rand.NewPCG(uint64(seq), 1)).IntN(100) < m.bad
}

// run has n consumers work for a time, each with a prefetch and so long for a message.
func (m *mixed) run(n, prefetch int, each, d time.Duration) {
	hands := make([]hand, n)
	for i := range hands {
		hands[i] = hand{id: SessionID(i + 1), free: m.now}
	}
	m.g.Connected(n)
	end := m.now.Add(d)
	for m.last = m.now; m.now.Before(end); m.now = m.now.Add(mixedStep) {
		m.g.Tick(m.now)
		m.supply()
		credit := 0
		for i := range hands {
			credit += prefetch - len(hands[i].holds)
		}
		m.g.Want(inMessages(credit), true)
		for i := range hands {
			m.work(&hands[i], prefetch, each)
		}
		for _, s := range []*Share{m.log, m.back} {
			if s.Unsaved() > 0 || s.LeavingMany() || m.now.Sub(start)%(100*time.Millisecond) == 0 {
				save(s, m.now)
			}
		}
		m.transfer()
		m.most = max(m.most, m.log.outstanding()+m.back.outstanding())
		m.gap = max(m.gap, m.now.Sub(m.last))
	}
}

func (m *mixed) supply() {
	for m.log.WantsMore() && m.log.supply.len() < 2000 {
		if err := m.log.Offer(records(m.log.ReadFrom(), 1000, nil), m.now); err != nil {
			m.t.Fatal(err)
		}
	}
	at := m.now.UnixNano() / int64(mixedStep)
	m.due = append(m.due, m.coming[at]...)
	delete(m.coming, at)
	for len(m.due) > 0 && m.back.WantsMore() {
		seq := m.due[0]
		m.due = m.due[1:]
		r := dueRecords(nil, nil, seq)
		r.History = []History{m.retries[seq-1].History}
		if err := m.back.OfferDue(r, m.now); err != nil {
			m.t.Fatal(err)
		}
	}
}

// work has a consumer answer what it is done with, and take as much as it has room for.
func (m *mixed) work(h *hand, prefetch int, each time.Duration) {
	for len(h.holds) > 0 && !h.free.After(m.now) {
		x := h.holds[0]
		h.holds, h.free = h.holds[1:], h.free.Add(each)
		if m.fails(x.share, x.seq) {
			x.share.Nack(x.seq, x.attempt, -1, nil, 0, m.now)
			continue
		}
		if x.share.Ack(x.seq, 1, x.attempt, m.now, nil) == nil {
			m.good++
			m.last = m.now
		}
	}
	if len(h.holds) == 0 && h.free.Before(m.now) {
		h.free = m.now.Add(each)
	}
	for _, r := range m.g.Take(h.id, Credit{Messages: prefetch - len(h.holds), Bytes: 1 << 20}, m.now, nil) {
		m.all += int(r.Count)
		if r.Attempt == 1 {
			m.firsts += int(r.Count)
		}
		for i := range core.Seq(r.Count) {
			h.holds = append(h.holds, grip{r.Share, r.Base + i, r.Attempt})
		}
	}
}

func (m *mixed) transfer() {
	for to := range Destination(Destinations) {
		for _, p := range m.g.TakeTransfers(to, 1000, nil) {
			if to == DeadLetterQueue {
				m.dead++
			} else {
				at := core.Receipt{Extent: m.log.Extent(), Seq: p.Seq}
				if p.Share == m.back {
					at = m.retries[p.Seq-1].Origin
				}
				m.retries = append(m.retries, parkedThere{History{Origin: at, Attempts: p.Attempts, NotCounted: p.NotCounted}, p.Due})
				due := max(p.Due.UnixNano(), m.now.UnixNano())/int64(mixedStep) + 1
				m.coming[due] = append(m.coming[due], core.Seq(len(m.retries)))
			}
			p.Share.Transferred(p.Seq, m.now)
		}
	}
}

func newMixed(t *testing.T, spec core.GroupSpec, bad int) *mixed {
	g, s := newShare(t, spec, 0)
	m := &mixed{t: t, g: g, log: s, bad: bad, now: start, coming: map[int64][]core.Seq{}}
	m.back = g.AddTimers(extent(2), State{}, start)
	m.back.Returning()
	return m
}

// TestMixed_GoodOnesGoOn: 95 % of the messages fail at each attempt, so that often 20 fail in a row by chance. The
// breaker opens again and again, and the good ones go on all the same, at no less than a third of the rate at which
// consumers come to them without a breaker; what is in memory is bounded.
func TestMixed_GoodOnesGoOn(t *testing.T) {
	const bad, consumers, d = 95, 4, 2 * time.Minute
	for _, backoff := range []time.Duration{0, time.Second, 20 * time.Second, 5 * time.Minute} {
		for _, each := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond} {
			if underrace.On && (backoff > 0 || each < 100*time.Millisecond) {
				continue
			}
			spec := core.GroupSpec{}
			if backoff > 0 {
				spec.Backoff = core.Backoff{Min: backoff, Factor: 1, Max: backoff}
			}
			m := newMixed(t, spec, bad)
			m.run(consumers, 16, each, d)
			all := consumers * int(d/each)
			if m.good < all*(100-bad)/100/3 || m.gap > 30*time.Second || m.most > 2*MaxOutstanding {
				t.Errorf("backoff %s, %s each: %d good ones of %d that consumers can handle, none for %s; %d messages in memory", backoff, each, m.good, all, m.gap, m.most)
			}
			c := m.g.Counters()
			t.Logf("backoff %s, %s each: %.1f good of %.1f deliveries/s, %d %% first, opened %d times, %d not counted, none good for %s, %d in memory",
				backoff, each, float64(m.good)/d.Seconds(), float64(m.all)/d.Seconds(), m.firsts*100/m.all, c.Opened, c.NotCounted, m.gap, m.most)
		}
	}
}

// TestBreaker_WideWhereFewSucceed: the first round lets four probes succeed if the messages are as they were before the
// row that opened it, and the next ones are smaller. An outage in a group in which most succeeded has four.
func TestBreaker_WideWhereFewSucceed(t *testing.T) {
	for _, x := range []struct {
		percent, good, bad int // before
		want               []int
	}{
		{percent: core.BreakerAlways, want: []int{4, 4, 4}},
		{percent: core.BreakerAlways, bad: 19, want: []int{4, 4, 4}}, // nothing ever succeeded
		{percent: core.BreakerAlways, good: 5000, bad: 10, want: []int{4, 4, 4}},
		{percent: core.BreakerAlways, good: 40, bad: 40, want: []int{8, 6, 4, 4}},
		{percent: core.BreakerAlways, good: 5, bad: 95, want: []int{80, 60, 45, 33, 24, 18, 13, 9, 6, 4, 4}},
		{percent: core.BreakerAlways, good: 1, bad: 99, want: []int{breakerFirst, breakerFirst * 3 / 4}},
		{percent: 50, good: 5, bad: 10, want: []int{4, 4, 4}}, // one success does not close it
	} {
		b := minuteBreaker(x.percent)
		for i := range x.bad {
			b.outcome(groupScope, outcome{id: core.Receipt{Seq: 1}}, sec-int64(breakerMixed)) // one message, which does not open it
			if i*x.good/x.bad < (i+1)*x.good/x.bad {
				b.outcome(groupScope, outcome{successes: max(x.good/x.bad, 1)}, sec-int64(breakerMixed))
			}
		}
		if _, opened := b.failAll(100, breakerLeast, true); !opened && x.percent == core.BreakerAlways {
			t.Fatalf("%+v: it did not open", x)
		} else if !opened {
			b.begin(sec)
		}
		now := sec
		for i, want := range x.want {
			if probes, counted := b.round(&now, true); probes != want || counted > 0 {
				t.Errorf("%+v: round %d has %d probes, of which %d count; want %d, none", x, i, probes, counted, want)
			}
		}
		if err := b.check(); err != nil {
			t.Error(err)
		}
	}
}
