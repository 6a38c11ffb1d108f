package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// retryWorld is a group of a busy queue, a part of whose messages fails at every delivery, in steps of retryStep: a
// share of the queue, one of the retry queue, and around them a consumer, a saver that writes one checkpoint of both
// after the other, and a retry queue that has an append, and is read, after some time.
type retryWorld struct {
	t        *testing.T
	now      time.Time
	group    *Group
	log      *Share
	retry    *Share
	random   *rand.Rand
	bad      map[core.Receipt]time.Time // when the next attempt of a bad message may begin, by where it was first
	saving   []retrySave
	savedAt  time.Time // when the write under way ends
	appends  []retryAppend
	parked   []retryAppend // by due
	next     core.Seq      // of the retry queue
	origins  map[core.Seq]core.Receipt
	late     []time.Duration
	firsts   int
	retries  int
	counting bool
}

type retrySave struct {
	s     *Share
	token uint64
}

type retryAppend struct {
	t    Transfer
	at   time.Time // when it is durable
	past History
}

// retryLoad is what happens to a retryWorld.
type retryLoad struct {
	bad        int // percent
	backoff    time.Duration
	deliveries int
	published  int           // messages a second
	consumed   int           // deliveries a second, at most
	save       time.Duration // of a checkpoint
	append     time.Duration // to the retry queue
}

const retryStep = 5 * time.Millisecond

func newRetryWorld(t *testing.T, l retryLoad) *retryWorld {
	g := NewGroup(core.GroupSpec{MaxDeliveries: l.deliveries, LockTimeout: time.Minute}.WithDefaults())
	w := &retryWorld{t: t, now: start, group: g, random: rand.New(rand.NewPCG(1, 2)), bad: map[core.Receipt]time.Time{}, origins: map[core.Seq]core.Receipt{}}
	w.log = g.AddShare(extent(1), State{}, start)
	w.retry = g.AddTimers(extent(2), State{}, start)
	w.retry.Returning()
	return w
}

// run lets some time pass.
func (w *retryWorld) run(l retryLoad, lasts time.Duration) {
	for end := w.now.Add(lasts); w.now.Before(end); w.now = w.now.Add(retryStep) {
		w.group.Tick(w.now)
		w.publish(l)
		w.readParked()
		w.save(l)
		w.move(l)
		w.consume(l)
	}
}

func perStep(second int) int { return second * int(retryStep) / int(time.Second) }

func (w *retryWorld) publish(l retryLoad) {
	if n := perStep(l.published); w.log.WantsMore() {
		if err := w.log.Offer(records(w.log.ReadFrom(), n, nil), w.now); err != nil {
			w.t.Fatal(err)
		}
	}
}

// readParked offers what is due in the retry queue.
func (w *retryWorld) readParked() {
	slices.SortStableFunc(w.parked, func(a, b retryAppend) int { return a.t.Due.Compare(b.t.Due) })
	var d DueRecords
	d.Offsets = []uint32{0}
	n := 0
	for ; n < len(w.parked) && !w.parked[n].t.Due.After(w.now) && w.retry.WantsMore(); n++ {
		w.next++
		d.Seqs = append(d.Seqs, w.next)
		d.Bytes = append(d.Bytes, 'x')
		d.Offsets = append(d.Offsets, uint32(len(d.Bytes)))
		d.DeliverAt, d.Enqueued = append(d.DeliverAt, w.parked[n].t.Due.UnixMilli()), append(d.Enqueued, w.now.UnixMicro())
		d.History = append(d.History, w.parked[n].past)
		w.origins[w.next] = w.parked[n].past.Origin
	}
	w.parked = w.parked[n:]
	if n > 0 {
		if err := w.retry.OfferDue(d, w.now); err != nil {
			w.t.Fatal(err)
		}
	}
}

// save ends the checkpoints under way when it is time, and begins the next ones.
func (w *retryWorld) save(l retryLoad) {
	if w.now.Before(w.savedAt) {
		return
	}
	for _, x := range w.saving {
		x.s.Saved(x.token)
	}
	w.saving = w.saving[:0]
	w.group.Want(inMessages(MaxOutstanding), true)
	for _, s := range []*Share{w.log, w.retry} {
		if s.Changed() || s.Unsaved() > 0 {
			_, token := s.Checkpoint(nil, false, w.now)
			w.saving = append(w.saving, retrySave{s, token})
		}
	}
	w.savedAt = w.now.Add(l.save)
}

// move ends appends to the retry queue, and begins others.
func (w *retryWorld) move(l retryLoad) {
	n := 0
	for ; n < len(w.appends) && !w.appends[n].at.After(w.now); n++ {
		x := w.appends[n]
		x.t.Share.Transferred(x.t.Seq, w.now)
		w.parked = append(w.parked, x)
	}
	w.appends = w.appends[n:]
	for _, x := range w.group.TakeTransfers(DeadLetterQueue, 10_000, nil) {
		x.Share.Transferred(x.Seq, w.now)
	}
	for _, x := range w.group.TakeTransfers(RetryQueue, 10_000, nil) {
		past := History{Origin: w.origin(x.Share, x.Seq), Attempts: x.Attempts, NotCounted: x.NotCounted}
		w.appends = append(w.appends, retryAppend{t: x, at: w.now.Add(l.append), past: past})
	}
}

func (w *retryWorld) origin(s *Share, seq core.Seq) core.Receipt {
	if s == w.retry {
		return w.origins[seq]
	}
	return core.Receipt{Extent: s.extent, Seq: seq}
}

// consume settles what one consumer can in a step, in the order in which it comes.
func (w *retryWorld) consume(l retryLoad) {
	most := perStep(l.consumed)
	w.group.Want(inMessages(MaxOutstanding), true)
	for _, r := range w.group.Take(1, Credit{Messages: most, Bytes: 64 << 20}, w.now, nil) {
		for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
			w.settle(l, r, seq)
		}
	}
}

func (w *retryWorld) settle(l retryLoad, r Run, seq core.Seq) {
	id := w.origin(r.Share, seq)
	due, failed := w.bad[id]
	if w.counting {
		if failed {
			w.late = append(w.late, w.now.Sub(due))
			w.retries++
		} else {
			w.firsts++
		}
	}
	if !failed && w.random.IntN(100) >= l.bad {
		r.Share.Ack(seq, 1, r.Attempt, w.now, nil)
		return
	}
	w.bad[id] = w.now.Add(l.backoff)
	if err := r.Share.Nack(seq, r.Attempt, l.backoff, nil, 0, w.now); err != nil {
		w.t.Fatal(err)
	}
}

func (w *retryWorld) lateness() time.Duration {
	if len(w.late) == 0 {
		return 0
	}
	slices.Sort(w.late)
	return w.late[(len(w.late)-1)*99/100]
}

// TestRetries_ComeInTime has a part of the messages fail at half of what the consumer can handle, while a checkpoint
// takes long: 99 % of the retries come within a second, and no first delivery waits for them, where there is room for
// as many.
func TestRetries_ComeInTime(t *testing.T) {
	const published = 20_000
	for _, l := range []retryLoad{
		{bad: 5, deliveries: 10},
		{bad: 5, deliveries: 10, backoff: time.Second},
		{bad: 20, deliveries: 2},
		{bad: 20, deliveries: 2, backoff: time.Second},
	} {
		if underrace.On && l.backoff > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%d %% bad, backoff %s, %d deliveries", l.bad, l.backoff, l.deliveries), func(t *testing.T) {
			l.published, l.consumed, l.save, l.append = published, 2*published, 30*time.Millisecond, 50*time.Millisecond
			w := newRetryWorld(t, l)
			w.run(l, l.backoff*3/2+500*time.Millisecond)
			w.counting = true
			w.run(l, 5*time.Second)
			if late := w.lateness(); late > time.Second || w.retries == 0 {
				t.Errorf("%d retries beside %d first deliveries: 99 %% come within %s, want 1 s", w.retries, w.firsts, late)
			}
			if w.firsts < 99*5*published/100 {
				t.Errorf("%d first deliveries in 5 s, want %d", w.firsts, 5*published)
			}
			if n := w.group.Counters().NotCounted; n > w.group.Counters().Nacked/50 {
				t.Errorf("%d failures of %d are not counted", n, w.group.Counters().Nacked)
			}
		})
	}
}
