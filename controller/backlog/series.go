package backlog

import "github.com/columbamq/columba/core"

// series are the counters of what was published, by queue. A queue that was published to keeps its own as long as there
// is room: a counter that moved to the sum of the rest and back would seem to begin anew.
type series struct {
	most int
	own  map[core.QueueID]*published
	rest position
}

type published struct {
	path string
	position
	gone bool // the queue has no live extents: it gives way to one that has
}

func newSeries(most int) series { return series{most: most, own: make(map[core.QueueID]*published)} }

// grow counts what was stored in a queue. Queues of groups have no series.
func (s *series) grow(q *queue, by position) {
	if q.path == "" {
		q.unnamed.add(by)
		return
	}
	if q.builtIn {
		return
	}
	p := s.own[q.id]
	if p == nil && s.room() {
		p = &published{path: q.path}
		s.own[q.id] = p
	}
	if p == nil {
		s.rest.add(by)
		return
	}
	p.gone = false
	p.add(by)
}

// room reports whether there is room for one more, for which one of a queue that is gone may have to give way.
func (s *series) room() bool {
	if len(s.own) < s.most {
		return true
	}
	for id, p := range s.own {
		if p.gone {
			delete(s.own, id)
			return true
		}
	}
	return false
}

// named counts what was stored in a queue before its path was known.
func (s *series) named(q *queue) {
	if by := q.unnamed; by.messages > 0 {
		q.unnamed = position{}
		s.grow(q, by)
	}
}

// drop notes that a queue has no live extents.
func (s *series) drop(id core.QueueID) {
	if p := s.own[id]; p != nil {
		p.gone = true
	}
}

func (p *position) add(o position) {
	p.messages += o.messages
	p.bytes += o.bytes
}
