package intake

import (
	"strings"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// kind of a call. Each kind has places of its own: those that wait on purpose leave the places of the others free.
type kind int

const (
	publicCall kind = iota
	publicPull
	hostCall
	hostPull
	kinds
)

// labels are the kinds in metrics.
var labels = [kinds]string{"public", "public_pull", "host", "host_pull"}

// mostCalls are how many calls of each kind may be under way. A call of an HTTP/2 connection counts for its connection
// before: the protocol bounds their streams.
var mostCalls = [kinds]int{publicCall: 4000, publicPull: 4000, hostCall: 10_000, hostPull: 4000}

// kindOf is the kind of a procedure.
func kindOf(path string, public bool) kind {
	pull := strings.HasSuffix(path, "/Pull")
	switch {
	case public && pull:
		return publicPull
	case public:
		return publicCall
	case pull:
		return hostPull
	}
	return hostCall
}

// places counts the calls under way, from before anything is read of their bodies until they are answered. One address
// may have three quarters of each kind. When there is no place for a call, one whose body still arrives may lose its
// own: see yield. Safe for concurrent use.
type places struct {
	most [kinds]int
	mu   struct {
		sync.Mutex
		all       [kinds]crowd
		byAddress [kinds]map[string]*crowd
		byConn    [kinds]map[any]int
	}
}

// crowd are calls of one kind.
type crowd struct {
	taken    int
	arriving map[*call]struct{} // those whose bodies still arrive
}

func newCrowd() crowd { return crowd{arriving: map[*call]struct{}{}} }

// call is one that has a place. Its fields are guarded by the mutex of places.
type call struct {
	kind    kind
	address string
	conn    any
	body    *Body // while it arrives
	lost    bool  // another call has the place
}

func newPlaces(most [kinds]int) *places {
	p := &places{most: most}
	for k := range most {
		p.mu.all[k], p.mu.byAddress[k], p.mu.byConn[k] = newCrowd(), map[string]*crowd{}, map[any]int{}
	}
	return p
}

// enter admits a call of a connection, which must leave; CodeThrottled.
func (p *places) enter(k kind, address string, conn any) (*call, error) {
	c := &call{kind: k, address: address, conn: conn}
	cut, err := p.take(c)
	if cut != nil {
		cut.Cut()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// take gives a call a place, maybe that of another one, whose body is to be cut.
func (p *places) take(c *call) (cut *Body, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := c.kind
	own := p.mu.byAddress[k][c.address]
	if own == nil {
		own = new(newCrowd())
	}
	var loser *call
	switch share := int(float64(p.most[k]) * addressShare); {
	case own.taken >= share:
		err = tooMany(k, share, " of this address")
		loser = yield(own, p.mu.byConn[k][c.conn], func(o *call) int { return p.mu.byConn[k][o.conn] })
	case p.mu.all[k].taken >= p.most[k]:
		err = tooMany(k, p.most[k], "")
		loser = yield(&p.mu.all[k], own.taken, func(o *call) int { return p.mu.byAddress[k][o.address].taken })
	}
	if loser != nil {
		cut, err = loser.body, nil
		p.removeLocked(loser)
	}
	if err != nil {
		return nil, err
	}
	p.mu.byAddress[k][c.address] = own
	p.mu.all[k].taken++
	own.taken++
	p.mu.byConn[k][c.conn]++
	return cut, nil
}

// candidates is how many calls are looked at for one that yields its place. A map gives other ones each time, so that
// of an address or a connection with most of the places some are among them.
const candidates = 16

// yield chooses a call of a crowd that gives its place to another: one of those that have more places together than the
// others have, as size tells, or else one whose body comes too slowly while others wait. There may be none.
func yield(of *crowd, others int, size func(*call) int) *call {
	var largest, slow *call
	seen := 0
	for c := range of.arriving {
		if seen++; seen > candidates {
			break
		}
		patient, late := c.body.pace()
		if patient {
			continue
		}
		if largest == nil || size(c) > size(largest) {
			largest = c
		}
		if late {
			slow = c
		}
	}
	if largest != nil && size(largest) > others+1 {
		return largest
	}
	return slow
}

// arrives begins the arrival of a call's body; arrived must follow.
func (p *places) arrives(c *call, body *Body) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.lost {
		return
	}
	c.body = body
	p.mu.all[c.kind].arriving[c] = struct{}{}
	p.mu.byAddress[c.kind][c.address].arriving[c] = struct{}{}
}

// arrived ends the arrival: the call keeps its place from then on, unless it reports that the place is lost.
func (p *places) arrived(c *call) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.lost {
		p.endArrivalLocked(c)
	}
	return c.lost
}

// leave gives the place of a call back.
func (p *places) leave(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.lost {
		p.removeLocked(c)
	}
}

func (p *places) endArrivalLocked(c *call) {
	delete(p.mu.all[c.kind].arriving, c)
	delete(p.mu.byAddress[c.kind][c.address].arriving, c)
	c.body = nil
}

func (p *places) removeLocked(c *call) {
	p.endArrivalLocked(c)
	c.lost = true
	k := c.kind
	p.mu.all[k].taken--
	own := p.mu.byAddress[k][c.address]
	if own.taken--; own.taken == 0 {
		delete(p.mu.byAddress[k], c.address)
	}
	if p.mu.byConn[k][c.conn]--; p.mu.byConn[k][c.conn] == 0 {
		delete(p.mu.byConn[k], c.conn)
	}
}

// under is how many calls of a kind are under way.
func (p *places) under(k kind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.all[k].taken
}

func tooMany(k kind, limit int, whose string) error {
	what, advice := "calls", "make fewer at once, and try again in a second"
	if k == publicPull || k == hostPull {
		what, advice = "pulls", "pull with fewer at once, or consume with the client library, and try again in a second"
	}
	err := core.Errorf(core.CodeThrottled, "%d %s%s are under way, which is the limit; %s", limit, what, whose, advice)
	err.RetryAfter = time.Second
	return err
}
