package dispatch

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// onceOwner is an owner of the share; some go on after another one has taken over.
type onceOwner struct {
	g       *Group
	s       *Share
	term    int
	unsaved []byte
	token   uint64
}

// onceMachine drives owners of one extent against a row that is changed by compare-and-set.
type onceMachine struct {
	spec    core.GroupSpec
	now     time.Time
	row     []byte // durable
	term    int    // whose it is
	owners  []*onceOwner
	given   map[core.Seq]int // how often handed out
	expire  map[core.Seq]time.Time
	buffers []*counted
	written core.Seq
}

func (m *onceMachine) durable(t *rapid.T) State {
	if m.row == nil {
		return State{}
	}
	st, err := DecodeState(m.row)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// takeOver makes another owner, whose first act is to make the row its own.
func (m *onceMachine) takeOver(t *rapid.T) {
	m.term++
	o := &onceOwner{g: NewGroup(m.spec), term: m.term}
	o.s = o.g.AddShare(extent(1), m.durable(t), m.now)
	if m.owners = append(m.owners, o); len(m.owners) > 3 {
		m.owners[0].g.RemoveShare(m.owners[0].s)
		m.owners = m.owners[1:]
	}
}

func (m *onceMachine) owner(t *rapid.T) *onceOwner {
	return m.owners[rapid.IntRange(0, len(m.owners)-1).Draw(t, "owner")]
}

func (m *onceMachine) offer(t *rapid.T) {
	o := m.owner(t)
	b := &counted{}
	m.buffers = append(m.buffers, b)
	n := rapid.IntRange(1, 30).Draw(t, "records")
	r := records(o.s.ReadFrom(), n, b)
	b.bytes = r.Bytes
	r.Expire = make([]int64, n)
	for i := range n {
		seq := r.Base + core.Seq(i)
		if _, known := m.expire[seq]; !known {
			m.expire[seq] = time.Time{}
			if rapid.IntRange(0, 9).Draw(t, "expires") == 0 {
				m.expire[seq] = m.now.Add(time.Second)
			}
		}
		if at := m.expire[seq]; !at.IsZero() {
			r.Expire[i] = at.UnixMilli()
		}
	}
	m.written = max(m.written, r.Base+core.Seq(n)-1)
	if err := o.s.Offer(r, m.now); err != nil {
		t.Fatal(err)
	}
}

// take hands out: never twice, and only what is done in the row.
func (m *onceMachine) take(t *rapid.T) {
	o := m.owner(t)
	credit := Credit{Messages: rapid.IntRange(1, 20).Draw(t, "messages"), Bytes: rapid.IntRange(1, 600).Draw(t, "bytes"), Largest: AnySize}
	n, done := 0, m.durable(t)
	for _, r := range o.g.Take(1, credit, m.now, nil) {
		n += int(r.Count)
		rest := r.Bytes
		for i := range r.Count {
			seq := r.Base + core.Seq(i)
			p := payload(seq)
			if !bytes.HasPrefix(rest, p) {
				t.Fatalf("seq %d has the wrong bytes", seq)
			}
			rest = rest[len(p):]
			if m.given[seq]++; m.given[seq] > 1 || r.Attempt != 1 {
				t.Fatalf("seq %d is handed out %d times, as attempt %d", seq, m.given[seq], r.Attempt)
			}
			if !done.done.Done(seq) {
				t.Fatalf("seq %d is handed out before it is done", seq)
			}
			if at := m.expire[seq]; !at.IsZero() && !m.now.Before(at) {
				t.Fatalf("seq %d is handed out although it expired", seq)
			}
		}
		if rapid.Bool().Draw(t, "nack") {
			if err := o.s.Nack(r.Base, 1, 0, nil, 0, m.now); core.CodeOf(err) != core.CodeStale {
				t.Fatalf("nack: %v", err)
			}
		}
		if bad := o.s.Ack(r.Base, r.Count, 1, m.now, nil); bad != nil {
			t.Fatalf("ack: %v", bad)
		}
		if bad := o.s.Return(1, r.Base, r.Count, 1, m.now, nil); bad != nil {
			t.Fatalf("return: %v", bad)
		}
	}
	if n > credit.Messages {
		t.Fatalf("%d messages for %+v", n, credit)
	}
}

func (m *onceMachine) checkpoint(t *rapid.T) {
	o := m.owner(t)
	o.unsaved, o.token = o.s.Checkpoint(nil, rapid.IntRange(0, 9).Draw(t, "final") == 0, m.now)
	if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
		o.unsaved = nil
	}
}

// save writes the row, if it is the owner's; the answer may be lost.
func (m *onceMachine) save(t *rapid.T) {
	o := m.owner(t)
	if o.unsaved == nil || o.term != m.term {
		t.Skip("nothing to save, or deposed")
	}
	m.row = o.unsaved
	o.unsaved = nil
	if rapid.IntRange(0, 4).Draw(t, "answer lost") > 0 {
		o.s.Saved(o.token)
	}
}

func (m *onceMachine) pass(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
	for _, o := range m.owners {
		o.g.Tick(m.now)
	}
}

func (m *onceMachine) check(t *rapid.T) {
	for _, o := range m.owners {
		if err := o.g.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOnce_Model: whatever owners there are, and whoever dies, nothing is handed out twice.
func TestOnce_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &onceMachine{
			spec: core.GroupSpec{Delivery: core.AtMostOnce}.WithDefaults(), now: start, given: map[core.Seq]int{}, expire: map[core.Seq]time.Time{},
		}
		m.takeOver(t)
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "offer": m.offer, "take": m.take, "take again": m.take, "checkpoint": m.checkpoint, "save": m.save, "pass": m.pass, "take over": m.takeOver,
		})
		o := m.owners[len(m.owners)-1]
		for round := 0; o.s.outstanding() > 0; round++ {
			if round > 1000 {
				t.Fatalf("stuck: %+v, %v", o.s.Depth(), o.g.check())
			}
			m.owners = []*onceOwner{o}
			m.take(t)
			o.unsaved, o.token = o.s.Checkpoint(nil, false, m.now)
			m.row = o.unsaved
			o.s.Saved(o.token)
		}
	})
}

// Without a crash no message is lost: everything comes, a batch at a time, and the next is claimed when one was handed
// out.
func TestOnce_AllComesWithoutFaults(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Delivery: core.AtMostOnce}, 1000)
	got := 0
	for rounds := 0; !s.Done(1000); rounds++ {
		if rounds > 50 {
			t.Fatalf("%d of 1000 came; %+v", got, g.Depth())
		}
		for _, r := range g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, start, nil) {
			got += int(r.Count)
		}
		if d := g.Depth(); d.InFlight != 0 || d.Ready+got < 1000 {
			t.Fatalf("%+v after %d", d, got)
		}
		save(s, start)
	}
	if got != 1000 || g.Counters().Acked != 1000 || g.Counters().Redelivered != 0 {
		t.Fatalf("%d came, %+v", got, g.Counters())
	}
	if at, ok := g.NextDeadline(); ok {
		t.Errorf("a deadline at %s", at)
	}
}

// A share that is given away without a crash gives what was claimed, and not handed out, to the next owner.
func TestOnce_FinalCheckpointGivesBackWhatWasNotHandedOut(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Delivery: core.AtMostOnce}, 10)
	want(t, "before the claim", take(g, 4, start))
	save(s, start)
	want(t, "after", take(g, 3, start), "1+3@1")
	blob, _ := s.Checkpoint(nil, true, start)
	next := NewGroup(g.spec)
	s = next.AddShare(extent(1), decode(t, blob), start)
	offer(t, s, 7)
	want(t, "the next owner claims", take(next, 9, start))
	save(s, start)
	want(t, "what was left", take(next, 9, start), "4+7@1")
}

// TestOnce_SettlementsSayWhy: such a group settles a message as it delivers it. A refusal must not say that it is
// redelivered.
func TestOnce_SettlementsSayWhy(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Delivery: core.AtMostOnce}, 1)
	take(g, 1, start)
	for what, err := range map[string]error{
		"nack": s.Nack(1, 1, 0, nil, 0, start), "reject": s.Reject(1, 1, nil, start), "extend": s.Extend(1, 1, time.Second, start), "replace": s.Replace(1, 1, nil, start),
	} {
		if core.CodeOf(err) != core.CodeStale || !strings.Contains(err.Error(), "at most once") || strings.Contains(err.Error(), "redelivered") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
