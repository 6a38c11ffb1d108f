package outputhost

import (
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/outputhost/lease"
)

// listLocked is what the host knows of a list of a queue: of the queue's own, or of that of a minority. nil: nothing.
func (h *Host) listLocked(queue core.QueueID, maker lease.Maker) *queueList {
	if !maker.Minority {
		return h.mu.lists[queue]
	}
	for _, l := range h.mu.minority[queue] {
		if l.lease.Maker() == maker {
			return l
		}
	}
	return nil
}

func (h *Host) keepListLocked(queue core.QueueID, l *queueList) {
	if l.minority == 0 {
		h.mu.lists[queue] = l
		return
	}
	h.mu.minority[queue] = append(h.mu.minority[queue], l)
}

func (h *Host) forgetListLocked(queue core.QueueID, l *queueList) {
	if l.minority == 0 {
		delete(h.mu.lists, queue)
		return
	}
	left := slices.DeleteFunc(slices.Clone(h.mu.minority[queue]), func(o *queueList) bool { return o == l })
	if h.mu.minority[queue] = left; len(left) == 0 {
		delete(h.mu.minority, queue)
	}
}

// shed gives up the shares of a queue's own list whose lease has ended, so that they do not hold up those of a minority: the messages of a group are handed out
// together. The host resumes them when a controller lists them again. The caller accepts a list.
func (h *Host) shed(queue core.QueueID) {
	h.mu.Lock()
	l := h.mu.lists[queue]
	if l == nil || l.shed || l.lease == nil || l.lease.Holds(h.deps.Now()) {
		h.mu.Unlock()
		return
	}
	l.shed, l.resumed = true, false
	l.changes.Add(1)
	h.mu.Unlock()
	h.giveUpOf(queue, 0)
}

// once reports whether the group delivers at most once. Such a group gets nothing from a minority, and keeps its shares and its lease.
func (g *group) once() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.record.Spec.Delivery == core.AtMostOnce
}

// giveUpOf gives up the shares of one list of a queue: of that of a minority, or of the queue's own one.
func (h *Host) giveUpOf(queue core.QueueID, minority uint32) {
	now := h.deps.Now()
	for _, g := range h.groupsOf(queue) {
		if minority == 0 && g.once() {
			continue
		}
		g.mu.Lock()
		all := slices.DeleteFunc(slices.Clone(g.orderedLocked()), func(s *share) bool { return s.minority != minority })
		g.mu.Unlock()
		for _, s := range slices.Backward(all) { // none of a chain must begin while earlier ones are gone already
			g.giveAway(s, now)
		}
	}
}

// End implements lease.Owner: it gives up the shares of the lists under a minority's lease. Their controller sends the lists again if they are still this host's.
func (x leased) End(of *lease.Lease) {
	h := x.h
	h.accepting <- struct{}{}
	h.mu.Lock()
	ended := make(map[*queueList]core.QueueID)
	for queue, some := range h.mu.minority {
		for _, l := range some {
			if l.lease == of {
				l.shares = 0
				l.changes.Add(1)
				h.forgetListLocked(queue, l)
				ended[l] = queue
			}
		}
	}
	h.mu.Unlock()
	var others []*group
	for l, queue := range ended {
		h.giveUpOf(queue, l.minority)
		others = append(others, h.putUnder(queue)...)
	}
	<-h.accepting
	for _, g := range others {
		g.pump()
	}
}
