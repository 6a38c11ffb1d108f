package quota

import (
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
)

// Duties are what a controller is responsible for.
type Duties interface {
	// Responsible reports whether this controller is for a key.
	Responsible(key core.ID) bool
	// Handovers is how often it stopped being responsible for something.
	Handovers() uint64
	// Unchanged is for how long nothing has changed in what it is responsible for.
	Unchanged() time.Duration
}

// takeOver is for how long leases of the controller before may run. Hosts and controllers measure time by their own
// clocks.
const takeOver = quota.LeaseFor + quota.LeaseFor/10

// tenure is a time in which this controller did not stop being responsible for anything. Its books have all leases that
// it gave since the time began:
//
//	responsible ──▶ hosts may hold leases that another one gave ──all have asked, or takeOver──▶ the books have all leases
//	   ▲                                                                                              │
//	   └───────────────────────────── responsible again ◀── another controller was ◀──────────────────┘
type tenure struct {
	handovers uint64       // so many there were before
	early     bool         // leases that another controller gave may run
	unheard   []core.RunID // runs of the hosts that may hold such leases
}

// tenure is the present one. Look first whether this controller is responsible, and then for the tenure: if another
// controller was responsible in between, the books of before are forgotten.
func (k *Keeper) tenure() tenure {
	t := tenure{handovers: k.Duties.Handovers(), early: k.Duties.Unchanged() < takeOver}
	if t.early {
		t.unheard = k.Inputs()
	}
	return t
}

// ask is a question of a run.
func (t tenure) ask(run core.RunID, need, held float64) quota.Ask {
	return quota.Ask{Run: run, Need: need, Held: held, Unheard: t.unheard}
}

// askRoom is a question about a backlog, which may not be known whole.
func (t tenure) askRoom(run core.RunID, need, held float64, untold bool) quota.Ask {
	a := t.ask(run, need, held)
	a.Keeps = untold
	return a
}

// during are the books of a tenure: those of another one are forgotten.
func (b *books) during(t tenure) *books {
	if b.handovers != t.handovers {
		b.messages, b.bytes, b.room, b.handovers = quota.Book{}, quota.Book{}, quota.Book{}, t.handovers
	}
	return b
}

// during is the same for the book of a queue.
func (b *queueBook) during(t tenure) *queueBook {
	if b.handovers != t.handovers {
		b.room, b.handovers = quota.Book{}, t.handovers
	}
	return b
}

// measured reports whether the backlog was measured in the tenure.
func (b *queueBook) measured(t tenure) bool { return !b.looked.IsZero() && b.lookedIn == t.handovers }

// holds reports whether the backlog is known whole: it was measured in the tenure, not too long ago, and every host has
// said how far it is.
func (b *queueBook) holds(now time.Time, t tenure, hold time.Duration) bool {
	return b.measured(t) && now.Sub(b.looked) < hold && !b.untold(t)
}

// untold reports whether a host that writes an extent of the queue has yet to say how far it is.
func (b *queueBook) untold(t tenure) bool {
	if !t.early {
		return false
	}
	for run := range b.writers {
		if p, told := b.pending[run]; !told || p.handovers != t.handovers {
			return true
		}
	}
	return false
}

// own leaves the namespaces and queues that this controller is responsible for. CodeMoved: none is.
func (k *Keeper) own(needs []*pb.NamespaceNeed, queues []asked) (ownNeeds []*pb.NamespaceNeed, ownQueues []asked, err error) {
	for _, n := range needs {
		if k.Duties.Responsible(quota.Key(n.GetNamespace())) {
			ownNeeds = append(ownNeeds, n)
		}
	}
	for _, q := range queues {
		if k.Duties.Responsible(quota.Key(core.Namespace(q.spec.Path))) {
			ownQueues = append(ownQueues, q)
		}
	}
	if len(ownNeeds)+len(ownQueues) == 0 && len(needs)+len(queues) > 0 {
		return nil, nil, core.Errorf(core.CodeMoved, "another controller divides these limits")
	}
	return ownNeeds, ownQueues, nil
}
