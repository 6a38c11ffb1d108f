package dispatch

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// look is all that the owner of a group asks of a share that changed.
type look struct {
	unsaved, leaving                 int
	many, changed, wants, lacks      bool
	readFrom                         core.Seq
	credit, held, heldBatches, noted int
	begun                            bool
	frontier                         core.Seq
	consumed                         uint64
}

func lookAt(s *Share) look {
	return look{
		unsaved: s.Unsaved(), leaving: s.Leaving(), many: s.LeavingMany(), changed: s.Changed(), wants: s.WantsMore(), lacks: s.Lacks(),
		readFrom: s.ReadFrom(), credit: s.ReadCredit(), held: s.Held(), heldBatches: s.HeldBatches(), noted: s.NoteBytes(),
		begun: s.Begun(s.next), frontier: s.Frontier(), consumed: s.Consumed(),
	}
}

// looker keeps what an owner knows that looks at changed shares only.
type looker map[*Share]look

// check compares that with a walk over all shares.
func (k looker) check(g *Group) (missed *Share) {
	for _, s := range g.takeChanged() {
		k[s] = lookAt(s)
	}
	for _, s := range g.shares {
		known, now := k[s], lookAt(s)
		if s.staying || now.leaving < known.leaving { // see TakeChanged
			known.leaving, known.many = now.leaving, now.many
		}
		known.many = known.many && now.many
		if k[s] = known; known != now {
			return s
		}
	}
	return nil
}

func (g *Group) takeChanged() (out []*Share) {
	g.TakeChanged(func(s *Share) { out = append(out, s) })
	return out
}

// TestGroup_TakeChanged: each share that changed is listed once, those that did not are not, and one that was removed
// is not either.
func TestGroup_TakeChanged(t *testing.T) {
	now := time.Unix(1000, 0)
	g := NewGroup(core.GroupSpec{LockTimeout: time.Minute, MaxDeliveries: 5}.WithDefaults())
	var shares []*Share
	for i := range 4 {
		shares = append(shares, g.AddShare(core.ExtentID{ID: core.ID{byte(i)}}, State{}, now))
	}
	expect := func(when string, want ...*Share) {
		t.Helper()
		if got := g.takeChanged(); !slices.Equal(got, want) {
			t.Fatalf("%s: %d shares changed, want %d", when, len(got), len(want))
		}
	}
	expect("at first", shares...)
	expect("then")
	for _, i := range []int{2, 1, 2} {
		if err := shares[i].Offer(records(shares[i].ReadFrom(), 2, nil), now); err != nil {
			t.Fatal(err)
		}
	}
	expect("when two were offered something", shares[2], shares[1])
	g.Take(7, Credit{Messages: 4, Bytes: 1 << 20}, now, nil)
	expect("when one was taken from", shares[2])
	shares[2].Ack(1, 1, 1, now, nil)
	g.RemoveShare(shares[2])
	expect("when it is gone")
}

// TestGroup_TakeChangedWhileMessagesStay: a message that had its last attempt does not leave while the breaker gathers
// failures. Once another succeeds its share is listed, though nothing about the share itself has changed.
func TestGroup_TakeChangedWhileMessagesStay(t *testing.T) {
	now := time.Unix(1000, 0)
	g := NewGroup(core.GroupSpec{LockTimeout: time.Minute, MaxDeliveries: 1}.WithDefaults())
	failing := g.AddShare(core.ExtentID{ID: core.ID{1}}, State{}, now)
	other := g.AddShare(core.ExtentID{ID: core.ID{2}}, State{}, now)
	for _, s := range []*Share{failing, other} {
		if err := s.Offer(records(1, 1, nil), now); err != nil {
			t.Fatal(err)
		}
	}
	g.Take(7, Credit{Messages: 2, Bytes: 1 << 20}, now, nil)
	if err := failing.Nack(1, 1, 0, nil, 0, now); err != nil {
		t.Fatal(err)
	}
	if g.takeChanged(); failing.Leaving() != 0 {
		t.Fatal("the message leaves at once")
	}
	other.Ack(1, 1, 1, now, nil)
	if got := g.takeChanged(); !slices.Contains(got, failing) || failing.Leaving() != 1 {
		t.Errorf("%d shares changed when another message was acked, and %d messages leave", len(got), failing.Leaving())
	}
}

// sees checks that whoever looks at changed shares only misses nothing.
func (m *machine) sees(t *rapid.T) {
	if m.looker == nil {
		m.looker = looker{}
	}
	known := m.looker[m.s]
	if missed := m.looker.check(m.g); missed != nil {
		t.Fatalf("the share changed and was not listed: %+v, known is %+v", lookAt(missed), known)
	}
}
