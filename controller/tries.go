package controller

import (
	"bytes"
	"cmp"
	"container/heap"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

const (
	minStuck = time.Second
	maxStuck = 30 * time.Second
)

// tries are the extents that rounds of seals look after, and which of all extents could not be sealed, or told their
// ends. An extent waits for its turn from add until next answers it. The first are those that have not failed, oldest
// first, then those whose time comes first. However many fail again and again, others get their turn. A round costs
// what is due, not what waits. Safe for concurrent use.
type tries struct {
	mu struct {
		sync.Mutex
		byID  map[core.ExtentID]*try
		turns turns
	}
}

// try is an extent that waits for its turn, or has failed, or both.
type try struct {
	id  core.ExtentID
	due time.Time // of its turn; zero: at once
	at  int       // in turns; -1: it does not wait

	failed bool // since a store came or went
	after  time.Time
	pause  time.Duration
	alarm  seal.Alarm // that was raised last
}

func newTries() *tries {
	x := &tries{}
	x.mu.byID = make(map[core.ExtentID]*try)
	return x
}

func (x *tries) getLocked(id core.ExtentID) *try {
	t := x.mu.byID[id]
	if t == nil {
		t = &try{id: id, at: -1}
		x.mu.byID[id] = t
	}
	return t
}

// waitLocked has an extent wait for its turn.
func (x *tries) waitLocked(t *try, due time.Time) {
	if t.due = due; t.at < 0 {
		heap.Push(&x.mu.turns, t)
	} else {
		heap.Fix(&x.mu.turns, t.at)
	}
}

// add has an extent wait for its turn: at once, or when the pause after its last try is over.
func (x *tries) add(id core.ExtentID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.getLocked(id)
	x.waitLocked(t, t.after)
}

// addAt has an extent wait until then, unless it waits already. It may have failed since it had its turn.
func (x *tries) addAt(id core.ExtentID, due time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.getLocked(id)
	if due.Before(t.after) {
		due = t.after
	}
	if t.at < 0 {
		x.waitLocked(t, due)
	}
}

// next takes the first extent whose turn has come.
func (x *tries) next(now time.Time) (id core.ExtentID, due time.Time, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.mu.turns) == 0 || now.Before(x.mu.turns[0].due) {
		return id, due, false
	}
	t := heap.Pop(&x.mu.turns).(*try)
	if !t.failed {
		delete(x.mu.byID, t.id)
	}
	return t.id, t.due, true
}

// fail has an extent wait longer after each try that failed.
func (x *tries) fail(id core.ExtentID, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.getLocked(id)
	t.failed, t.pause = true, min(max(2*t.pause, minStuck), maxStuck)
	if t.after = now.Add(t.pause); t.at >= 0 {
		x.waitLocked(t, t.after)
	}
}

// succeed forgets that an extent failed.
func (x *tries) succeed(id core.ExtentID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.mu.byID[id]; t != nil {
		x.freeLocked(t)
		if t.at >= 0 {
			heap.Fix(&x.mu.turns, t.at)
		}
	}
}

// freeLocked is succeed, without moving its turn.
func (x *tries) freeLocked(t *try) {
	if t.at < 0 {
		delete(x.mu.byID, t.id)
		return
	}
	*t = try{id: t.id, at: t.at}
}

// free lets all that wait be tried at once.
func (x *tries) free() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.mu.byID {
		x.freeLocked(t)
	}
	heap.Init(&x.mu.turns)
}

// hasFailed reports whether an extent has failed since a store came or went.
func (x *tries) hasFailed(id core.ExtentID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.mu.byID[id]
	return t != nil && t.failed
}

// raise notes the alarm of a try; news says that the try before had another one, or none.
func (x *tries) raise(id core.ExtentID, alarm seal.Alarm) (news bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.getLocked(id)
	news = t.alarm != alarm
	t.failed, t.alarm = true, alarm
	return news
}

// turns is a heap: the first one is next.
type turns []*try

func (q turns) Len() int { return len(q) }

func (q turns) Less(i, j int) bool {
	a, b := q[i], q[j]
	return cmp.Or(a.due.Compare(b.due), bytes.Compare(a.id.ID[:], b.id.ID[:])) < 0
}

func (q turns) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *turns) Push(x any) {
	t := x.(*try)
	t.at = len(*q)
	*q = append(*q, t)
}

func (q *turns) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.at = -1
	return t
}
