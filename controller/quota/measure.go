package quota

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// atOnce are the queues that are measured side by side, of one survey and in all.
	atOnce, allAtOnce = 8, 32
	// share is the part of the time that a survey takes at most. A namespace has two.
	share = 20
	// leastPace and failedPace are between two surveys: at least, and at most after one that failed.
	leastPace, failedPace = time.Second, 30 * time.Second
	// leastHold is for how long the result of a survey counts, or three of its paces if that is longer.
	leastHold = 10 * time.Second
	// askedFor is how long a queue is among the asked ones after a host has asked.
	askedFor = 10 * time.Second
	// listFor is how long the list of a namespace's queues holds. One made since counts as soon as it is published to.
	listFor = 5 * time.Second
	// mostFailures end a survey: it has failed, and every other queue may take as long to fail.
	mostFailures = 16
	pageSize     = 1000
)

// survey is one of the two measurements of a namespace: of the queues that hosts ask about, or of all others.
//
//	due ──▶ running ──all measured──▶ its result counts, for three paces ──▶ due, one pace after its beginning
//	           └──────some failed──▶ the result of before counts, as long as it would have
type survey struct {
	running   bool
	next      time.Time     // not before
	ended     time.Time     // the last one
	pace      time.Duration // between two
	done      time.Time     // when the last one began that measured all; zero: there was none
	handovers uint64        // of the tenure in which that was
}

// holds reports whether the result counts.
func (s *survey) holds(now time.Time, t tenure) bool {
	return !s.done.IsZero() && s.handovers == t.handovers && now.Sub(s.done) < s.hold()
}

// during forgets the result of another tenure.
func (s *survey) during(t tenure) {
	if s.handovers != t.handovers {
		s.next, s.done, s.handovers = time.Time{}, time.Time{}, t.handovers
	}
}

func (s *survey) hold() time.Duration { return max(leastHold, 3*s.pace) }

// isDue reports whether the survey may begin.
func (s *survey) isDue(now time.Time) bool {
	return !s.running && (!now.Before(s.next) || now.Before(s.ended)) // the clock was set back
}

// job is a survey that begins. Of the queues that hosts ask about it may be for those without a result alone.
type job struct {
	name   string
	books  *books
	others bool // the survey is that of the others
	first  bool // only what has no result
}

func (j job) survey() *survey {
	if j.others {
		return &j.books.others
	}
	return &j.books.asked
}

// Run measures the backlogs that hosts ask about, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(leastPace)
	defer timer.Stop()
	for {
		jobs, wait := k.due(k.now())
		for _, j := range jobs {
			wg.Go(func() {
				k.measure(ctx, j)
				k.again()
			})
		}
		timer.Reset(wait)
		select {
		case <-k.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// again has Run look for surveys that are due.
func (k *Keeper) again() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// want notes the queues whose backlogs have limits, and has those measured at once that were never.
func (k *Keeper) want(queues []asked, limits map[string]core.NamespaceSpec, t tenure) {
	now, soon := k.now(), false
	k.mu.Lock()
	for name, part := range limited(queues, limits) {
		b := k.namespaceLocked(name, now)
		b.limited = limits[name].BacklogBytes > 0
		for _, q := range part {
			book := k.queueLocked(q.id)
			b.active[q.id] = now
			soon = soon || !book.measured(t)
		}
	}
	k.mu.Unlock()
	if soon {
		k.again()
	}
}

// due are the surveys that begin now, and how long it is to the next one at most.
func (k *Keeper) due(now time.Time) (jobs []job, wait time.Duration) {
	t := k.tenure()
	wait = forgetAfter
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, b := range k.mu.namespaces {
		b.asked.during(t)
		b.others.during(t)
		b.pruneLocked(now)
		if len(b.active) == 0 {
			continue
		}
		first := false
		for id := range b.active {
			first = first || k.firstLocked(id, now, t)
		}
		switch {
		case b.asked.isDue(now):
			jobs = append(jobs, job{name: name, books: b})
		case first && !b.asked.running:
			jobs = append(jobs, job{name: name, books: b, first: true})
		}
		if b.limited && b.others.isDue(now) {
			jobs = append(jobs, job{name: name, books: b, others: true})
		}
		for _, s := range []*survey{&b.asked, &b.others} {
			if until := s.next.Sub(now); until > 0 {
				wait = min(wait, until)
			}
		}
		wait = min(wait, leastPace) // queues that were tried in vain
	}
	for _, j := range jobs {
		j.survey().running = true
	}
	return jobs, wait
}

// pruneLocked forgets when hosts asked about queues that they do not ask about any more. Such a queue counts as listed:
// it may be newer than the list.
func (b *books) pruneLocked(now time.Time) {
	maps.DeleteFunc(b.active, func(id core.QueueID, at time.Time) bool {
		gone := now.Sub(at) > askedFor
		if gone && b.listed != nil {
			b.listed[id] = struct{}{}
		}
		return gone
	})
}

// firstLocked reports whether a queue has no result, and was not tried lately.
func (k *Keeper) firstLocked(id core.QueueID, now time.Time, t tenure) bool {
	b := k.queueLocked(id)
	return !b.measured(t) && (now.Sub(b.tried) >= leastHold || now.Before(b.tried))
}

// measure does one survey.
func (k *Keeper) measure(ctx context.Context, j job) {
	t, began := k.tenure(), k.now()
	w := &work{}
	err := k.surveyed(ctx, j, w, t)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	s := j.survey()
	s.running, s.ended = false, k.now()
	pace := max(leastPace, share*w.took())
	switch {
	case j.first && err != nil: // the next survey of all tries it again
	case j.first: // it takes its part of the time, too
		s.next = s.next.Add(share * w.took())
	case err != nil:
		s.next = began.Add(min(pace, failedPace))
	default:
		s.pace, s.next, s.done, s.handovers = pace, began.Add(pace), began, t.handovers
	}
	tell := err != nil && k.mu.failures.Failed(k.now())
	k.mu.Unlock()
	if tell {
		k.Log.Warn("the backlog of a namespace cannot be measured; its publishers keep the room that they have, and then wait; check the metadata", "namespace", j.name, "err", err)
	}
}

// surveyed measures the queues of a survey, and answers the first error.
func (k *Keeper) surveyed(ctx context.Context, j job, w *work, t tenure) error {
	queues, err := k.queuesOf(ctx, j, w, t)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	next := make(chan core.QueueID)
	for range min(atOnce, len(queues)) {
		wg.Go(func() {
			for id := range next {
				if !w.hopeless() {
					w.did(k.timed(ctx, func() error { return k.look(ctx, j.name, id, t) }))
				}
			}
		})
	}
	for _, id := range queues {
		next <- id
	}
	close(next)
	wg.Wait()
	return w.first()
}

// timed does one piece of work in its turn, and answers how long that took without the wait.
func (k *Keeper) timed(ctx context.Context, f func() error) (time.Duration, error) {
	if err := k.Wait(ctx); err != nil {
		return 0, err
	}
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	began := k.now()
	err := f()
	return k.now().Sub(began), err
}

// queuesOf are the queues of a survey.
func (k *Keeper) queuesOf(ctx context.Context, j job, w *work, t tenure) (out []core.QueueID, err error) {
	if j.others {
		took, err := k.timed(ctx, func() error { return k.list(ctx, j) })
		w.did(took, err)
		if err != nil {
			return nil, err
		}
	}
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !j.others {
		for id := range j.books.active {
			if !j.first || k.firstLocked(id, now, t) {
				out = append(out, id)
			}
		}
		return out, nil
	}
	for id := range j.books.listed {
		if _, active := j.books.active[id]; !active {
			out = append(out, id)
		}
	}
	return out, nil
}

// list reads the users' queues of a namespace. It may miss the newest.
func (k *Keeper) list(ctx context.Context, j job) error {
	now := k.now()
	k.mu.Lock()
	known := !j.books.listedAt.IsZero() && now.Sub(j.books.listedAt).Abs() < listFor
	k.mu.Unlock()
	if known {
		return nil
	}
	listed := make(map[core.QueueID]struct{})
	for after := ""; ; {
		rows, more, err := metadata.Prefix[metadata.NameRecord](ctx, k.meta, metadata.Names, metadata.PartitionPath, j.name+"/", after, pageSize, metadata.One)
		if err != nil {
			return core.Errorf(core.CodeOf(err), "list the queues of namespace %s: %w", j.name, err)
		}
		for _, r := range rows {
			if !r.Value.Queue.IsZero() && r.Value.Owner.IsZero() {
				listed[r.Value.Queue] = struct{}{}
			}
		}
		if !more || len(rows) == 0 {
			break
		}
		after = rows[len(rows)-1].Key.Row
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	j.books.listed, j.books.listedAt = listed, now
	return nil
}

// work is what a survey has done. Safe for concurrent use.
type work struct {
	mu       sync.Mutex
	sum      time.Duration
	longest  time.Duration
	failures int
	err      error // the first one
}

func (w *work) did(took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sum += took
	w.longest = max(w.longest, took)
	if err != nil {
		if w.failures++; w.err == nil {
			w.err = err
		}
	}
}

// took is the time that the work takes, atOnce side by side.
func (w *work) took() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.sum/atOnce, w.longest)
}

func (w *work) hopeless() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures >= mostFailures
}

func (w *work) first() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
