package dispatch

// session is what a group keeps of a consumer's session, while it is connected or holds something.
type session struct {
	held    int  // messages in flight
	present bool // it was handed something, and has not left
}

// sessions are those of a group. The one that was asked for last is at hand, since mostly one session takes, or
// settles, many messages in a row.
//
//	Σ held == the group's messages in flight
type sessions struct {
	of     map[SessionID]*session // nil until there is one
	last   *session               // nil: none
	lastID SessionID
}

// get is a session, or nil.
func (x *sessions) get(id SessionID) *session {
	id = id.known()
	if x.last != nil && x.lastID == id {
		return x.last
	}
	s := x.of[id]
	if s != nil {
		x.last, x.lastID = s, id
	}
	return s
}

// make is a session, made if need be.
func (x *sessions) make(id SessionID) *session {
	id = id.known()
	s := x.get(id)
	if s == nil {
		if x.of == nil {
			x.of = map[SessionID]*session{}
		}
		s = new(session)
		x.of[id] = s
		x.last, x.lastID = s, id
	}
	return s
}

// holds notes that a session has n more messages in flight. Frequent.
func (x *sessions) holds(id SessionID, n int) {
	s := x.make(id)
	if s.held += n; s.held == 0 && !s.present {
		x.drop(id)
	}
}

// held is how many messages a session has in flight.
func (x *sessions) held(id SessionID) int {
	if s := x.get(id); s != nil {
		return s.held
	}
	return 0
}

// gave notes that a session was handed something.
func (x *sessions) gave(id SessionID) { x.make(id).present = true }

// leave forgets a session that is over, once it holds nothing.
func (x *sessions) leave(id SessionID) {
	s := x.get(id)
	if s == nil {
		return
	}
	if s.present = false; s.held == 0 {
		x.drop(id)
	}
}

func (x *sessions) drop(id SessionID) {
	delete(x.of, id.known())
	x.last = nil
}

// InFlightOf counts the messages that a session holds under a lock.
func (g *Group) InFlightOf(session SessionID) int { return g.sessions.held(session) }

// Leave forgets a session that is over. The messages that it holds stay locked, and may still be settled.
func (g *Group) Leave(session SessionID) {
	g.sessions.leave(session)
	delete(g.throttle.paces, session)
	if g.isolation != nil {
		delete(g.isolation.given, session)
	}
}

// dropHeld takes the messages in flight of a share out of what sessions hold.
func (g *Group) dropHeld(s *Share) {
	if s.of(inFlight) == 0 {
		return
	}
	for _, c := range s.table.chunks {
		for i := range c.messages {
			if m := &c.messages[i]; m.phase == inFlight {
				g.sessions.holds(m.session, -1)
			}
		}
	}
}
