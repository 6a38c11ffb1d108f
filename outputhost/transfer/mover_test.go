package transfer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/outputhost/transfer/history"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

var now = time.UnixMilli(1_700_000_000_000)

// harness is a mover with a group, whose queues have what the input host stored and what is put there.
type harness struct {
	t       *testing.T
	host    *publishtest.Host
	mover   *Mover
	outbox  Outbox
	pumped  chan struct{} // the group was pumped since it was read last
	record  metadata.GroupRecord
	dead    []*wire.Record // that look-ups find
	delayed []*wire.Record
	lookErr error
	looking chan struct{} // a look-up in the retry queue sends there, and ends when it can again; nil: it ends at once
	since   time.Time     // that the last look-up began at
	lost    bool          // the share was given up
	mu      struct {
		sync.Mutex
		now      time.Time
		outcomes map[core.Seq]error
		retryAt  map[core.Seq]time.Time
		moved    [dispatch.Destinations]int
		pumps    int
	}
}

func newHarness(t *testing.T) *harness {
	b := &harness{t: t, pumped: make(chan struct{}, 1), host: publishtest.Start(t, &publishtest.Host{})}
	b.mu.now, b.mu.outcomes, b.mu.retryAt = now, make(map[core.Seq]error), make(map[core.Seq]time.Time)
	b.record = metadata.GroupRecord{
		ID: core.GroupID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}, DLQ: core.QueueID{ID: core.NewID(now)}, Retry: core.QueueID{ID: core.NewID(now)}, Started: true,
		Spec: core.GroupSpec{Queue: "/t/q", Name: "g", Status: core.StatusEnabled},
	}
	b.outbox.setReady(dispatch.RetryQueue)
	tasks := lifecycle.NewTasks()
	var muxes sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		tasks.Stop(context.Canceled)
		cancel()
		muxes.Wait()
	})
	b.mover = New(Config{
		Meta: memory.New(), Reader: b, Tasks: tasks, Client: "output-0", Log: slog.New(slog.DiscardHandler),
		Now:   b.Now,
		Hosts: func() []publish.Host { return []publish.Host{{ID: "input-0", Address: b.host.Addr()}} },
		Dial: func(dctx context.Context, h publish.Host) (*ws.Mux, error) {
			c, err := ws.Dial(dctx, h.Address, "/v1/publish", ws.Options{})
			if err != nil {
				return nil, err
			}
			m := ws.NewMux(c, nil)
			muxes.Go(func() { m.Run(ctx) })
			return m, nil
		},
		Moved: func(to dispatch.Destination) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.mu.moved[to]++
		},
	})
	return b
}

func (b *harness) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.now
}

func (b *harness) Record() metadata.GroupRecord               { return b.record }
func (b *harness) Sender(dispatch.SessionID) (string, uint64) { return "worker", 3 }
func (b *harness) Owns(dispatch.Transfer) (time.Time, bool)   { return now.Add(-time.Hour), !b.lost }
func (b *harness) Outbox() *Outbox                            { return &b.outbox }

func (b *harness) Settle(t dispatch.Transfer, err error, retryAt, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.outcomes[t.Seq], b.mu.retryAt[t.Seq] = err, retryAt
}

func (b *harness) Pump() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.pumps++
	select {
	case b.pumped <- struct{}{}:
	default:
	}
}

func (b *harness) EachSince(_ context.Context, queue core.QueueID, since time.Time, f func(*wire.Record) bool) error {
	if b.since = since; queue != b.record.DLQ {
		b.t.Errorf("dead letters are looked for in queue %s", queue)
	}
	for _, r := range b.dead {
		if !f(r) {
			break
		}
	}
	return b.lookErr
}

func (b *harness) EachDue(_ context.Context, queue core.QueueID, due []int64, f func(*wire.Record) bool) error {
	if queue != b.record.Retry {
		b.t.Errorf("retries are looked for in queue %s", queue)
	}
	if b.looking != nil {
		b.looking <- struct{}{}
		b.looking <- struct{}{}
	}
	for _, r := range b.delayed {
		if slices.Contains(due, r.DeliverAt) && !f(r) {
			break
		}
	}
	return b.lookErr
}

// message is one that leaves with seq, also the one it looks like in the queue.
func (b *harness) message(to dispatch.Destination, seq core.Seq, again bool) dispatch.Transfer {
	record, err := wire.AppendRecord(nil, &wire.Record{ID: core.MessageID{ID: core.NewID(now)}, Key: []byte("k"), Payload: []byte{byte('a' + seq)}})
	if err != nil {
		b.t.Fatal(err)
	}
	t := dispatch.Transfer{To: to, Of: dispatch.Source{Extent: core.ExtentID{ID: core.ID{1}}}, Seq: seq, Attempts: 2, Failure: dispatch.Nacked, Again: again, Record: record}
	if to == dispatch.RetryQueue {
		t.Due = now.Add(time.Hour)
	}
	return t
}

// there is the record that an earlier append of a message would have made.
func (b *harness) there(t dispatch.Transfer) *wire.Record {
	r, err := history.Record(t, "another", 3)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// send sends messages and waits for their outcomes.
func (b *harness) send(some ...dispatch.Transfer) map[core.Seq]error {
	b.t.Helper()
	clear(b.mu.outcomes)
	b.mover.Begin(b, time.Now(), some)
	deadline := time.After(10 * time.Second)
	for {
		b.mu.Lock()
		out, pumps := len(b.mu.outcomes), b.mu.pumps
		b.mu.Unlock()
		if out == len(some) && pumps > 0 && !b.outbox.Busy() {
			return b.mu.outcomes
		}
		select {
		case <-b.pumped:
		case <-deadline:
			b.t.Fatalf("%d of %d outcomes came", out, len(some))
		}
	}
}

var destinations = []dispatch.Destination{dispatch.DeadLetterQueue, dispatch.RetryQueue}

// TestMover_LooksBeforeItAppendsAgain has each queue hold one of two messages that it may have: only the other one is
// appended.
func TestMover_LooksBeforeItAppendsAgain(t *testing.T) {
	for _, to := range destinations {
		b := newHarness(t)
		first, again, missing := b.message(to, 1, false), b.message(to, 2, true), b.message(to, 3, true)
		b.dead, b.delayed = []*wire.Record{b.there(again)}, []*wire.Record{b.there(again)}
		for seq, err := range b.send(again, missing, first) {
			if err != nil {
				t.Errorf("%s: seq %d: %v", to, seq, err)
			}
		}
		stored := b.host.Stored()
		if slices.Sort(stored); !slices.Equal(stored, []string{"b", "d"}) || b.mu.moved[to] != 3 {
			t.Errorf("%s: %q were appended, %d are counted", to, stored, b.mu.moved[to])
		}
		if want := now.Add(-time.Hour - lookBack); to == dispatch.DeadLetterQueue && !b.since.Equal(want) {
			t.Errorf("they are looked for from %s, want %s", b.since, want)
		}
		if b.outbox.Err(to) != nil {
			t.Errorf("%s: %v", to, b.outbox.Err(to))
		}
	}
}

// TestMover_NotWhileAnotherIsUnderWay looks for messages that an earlier append may yet bring into the queue: one that
// is there is settled at once. One that is not waits until it is certain, whether the look-up succeeds or fails.
func TestMover_NotWhileAnotherIsUnderWay(t *testing.T) {
	for _, to := range destinations {
		for _, fails := range []bool{false, true} {
			b := newHarness(t)
			there, missing := b.message(to, 1, true), b.message(to, 2, true)
			there.Certain, missing.Certain = now.Add(time.Second), now.Add(time.Second)
			b.dead, b.delayed = []*wire.Record{b.there(there)}, []*wire.Record{b.there(there)}
			if fails {
				b.lookErr = core.Errorf(core.CodeUnavailable, "no store is there")
			}
			outcomes := b.send(there, missing)
			if outcomes[1] != nil || outcomes[2] == nil || core.CodeOf(outcomes[2]) == core.CodeUnknown || len(b.host.Stored()) > 0 {
				t.Errorf("%s, fails %v: %v, %q are appended", to, fails, outcomes, b.host.Stored())
			}
			if at := b.mu.retryAt[2]; !at.Equal(missing.Certain) {
				t.Errorf("%s, fails %v: the message waits until %s, want %s", to, fails, at, missing.Certain)
			}
			if err := b.outbox.Err(to); err != nil {
				t.Errorf("%s, fails %v: the queue cannot be written: %v", to, fails, err)
			}
			b.mu.Lock()
			b.lookErr, b.mu.now = nil, missing.Certain
			b.mu.Unlock()
			if err := b.send(missing)[2]; err != nil || len(b.host.Stored()) != 1 {
				t.Errorf("%s, fails %v: then %v, %q are appended", to, fails, err, b.host.Stored())
			}
		}
	}
}

// TestMover_LookUpFails: a message waits for a look-up that works, for some minutes.
func TestMover_LookUpFails(t *testing.T) {
	for _, to := range destinations {
		b := newHarness(t)
		b.lookErr = core.Errorf(core.CodeUnavailable, "no store is there")
		if err := b.send(b.message(to, 1, true))[1]; core.CodeOf(err) != core.CodeUnavailable || len(b.host.Stored()) > 0 {
			t.Errorf("%s: at first %v, %q are appended", to, err, b.host.Stored())
		}
		if b.outbox.Err(to) == nil {
			t.Errorf("%s: no error is shown", to)
		}
		later := func(at time.Duration) error {
			b.mu.Lock()
			b.mu.now = now.Add(at)
			b.mu.Unlock()
			return b.send(b.message(to, 1, true))[1]
		}
		for at := lookAgain; at < patience; at += lookAgain {
			if err := later(at); core.CodeOf(err) != core.CodeUnavailable {
				t.Fatalf("%s: after %s %v", to, at, err)
			}
		}
		if err := later(patience); err != nil || len(b.host.Stored()) == 0 {
			t.Errorf("%s: later %v, %q are appended", to, err, b.host.Stored())
		}
	}
}

// TestMover_LookUpFailsAnew: a look-up that failed long before, of a message that has gone elsewhere since, shortens no
// other message's wait.
func TestMover_LookUpFailsAnew(t *testing.T) {
	for _, to := range destinations {
		b := newHarness(t)
		b.lookErr = core.Errorf(core.CodeUnavailable, "no store is there")
		b.send(b.message(to, 1, true))
		b.mu.Lock()
		b.mu.now = now.Add(time.Hour)
		b.mu.Unlock()
		if err := b.send(b.message(to, 2, true))[2]; core.CodeOf(err) != core.CodeUnavailable || len(b.host.Stored()) > 0 {
			t.Errorf("%s: %v, %q are appended", to, err, b.host.Stored())
		}
	}
}

// TestMover_LookUpHoldsUpNoOther appends messages, and has further ones that are to be looked for come again later,
// while a look-up is under way.
func TestMover_LookUpHoldsUpNoOther(t *testing.T) {
	b := newHarness(t)
	b.looking = make(chan struct{})
	b.mover.Begin(b, time.Now(), []dispatch.Transfer{b.message(dispatch.RetryQueue, 1, true)})
	<-b.looking
	b.outbox.mu.Lock()
	busy := b.outbox.used.of[dispatch.RetryQueue].busy
	b.outbox.mu.Unlock()
	if busy {
		t.Error("no other message is taken for the queue meanwhile")
	}
	b.mover.Begin(b, time.Now(), []dispatch.Transfer{b.message(dispatch.RetryQueue, 2, false), b.message(dispatch.RetryQueue, 3, true)})
	outcomes := func(n int) map[core.Seq]error {
		t.Helper()
		for deadline := time.After(10 * time.Second); ; {
			b.mu.Lock()
			out := maps.Clone(b.mu.outcomes)
			b.mu.Unlock()
			if len(out) >= n {
				return out
			}
			select {
			case <-b.pumped:
			case <-deadline:
				t.Fatalf("%d of %d outcomes came", len(out), n)
			}
		}
	}
	if got := outcomes(2); got[2] != nil || core.CodeOf(got[3]) != core.CodeUnavailable {
		t.Errorf("outcomes are %v, want an append of 2, and 3 to come again", got)
	}
	<-b.looking
	if got := outcomes(3); got[1] != nil {
		t.Errorf("the message that was looked for: %v", got[1])
	}
}

// TestMover_OfAnotherOwner appends nothing of a share that was given up: its next owner does.
func TestMover_OfAnotherOwner(t *testing.T) {
	for _, to := range destinations {
		b := newHarness(t)
		b.lost = true
		if err := b.send(b.message(to, 1, false))[1]; core.CodeOf(err) != core.CodeMoved || len(b.host.Stored()) > 0 {
			t.Errorf("%s: %v, %q are appended", to, err, b.host.Stored())
		}
	}
}

// TestMover_NoRetryQueue cannot make the queue of a group that is gone: nothing is appended, whatever the error says.
func TestMover_NoRetryQueue(t *testing.T) {
	b := newHarness(t)
	b.outbox = Outbox{}
	if err := b.send(b.message(dispatch.RetryQueue, 1, false))[1]; core.CodeOf(err) != core.CodeUnavailable || len(b.host.Stored()) > 0 {
		t.Errorf("%v, %q are appended", err, b.host.Stored())
	}
}

// TestOutbox_OneQueueAtATime takes no more for a queue while messages are on their way to its publisher, and for the
// other one meanwhile.
func TestOutbox_OneQueueAtATime(t *testing.T) {
	var o Outbox
	rules := dispatch.NewGroup(core.GroupSpec{Queue: "/t/q", Name: "g"}.WithDefaults())
	s := rules.AddShare(core.ExtentID{ID: core.ID{1}}, dispatch.State{}, now)
	const n = atOnce + 10
	r := dispatch.Records{Base: 1, Offsets: make([]uint32, 2*n+1), Enqueued: now.UnixMicro()}
	if err := s.Offer(r, now); err != nil {
		t.Fatal(err)
	}
	rules.Take(1, dispatch.Credit{Messages: 2 * n, Bytes: 1 << 20}, now, nil)
	for seq := core.Seq(1); seq <= 2*n; seq += 2 {
		if err := s.Reject(seq, 1, nil, now); err != nil {
			t.Fatal(err)
		}
		if err := s.Nack(seq+1, 1, time.Hour, nil, 0, now); err != nil {
			t.Fatal(err)
		}
	}
	_, token := s.Checkpoint(nil, false, now)
	s.Saved(token)
	for _, to := range destinations {
		if got := len(o.Next(rules, to)); got != atOnce {
			t.Errorf("%d leave for the %s at first", got, to)
		}
		if got := len(o.Next(rules, to)); got != 0 || !o.Busy() {
			t.Errorf("%d more leave for the %s while those are on their way", got, to)
		}
	}
	o.over(dispatch.RetryQueue)
	if dead, delayed := len(o.Next(rules, dispatch.DeadLetterQueue)), len(o.Next(rules, dispatch.RetryQueue)); dead != 0 || delayed != 10 {
		t.Errorf("then %d and %d leave, want none and 10", dead, delayed)
	}
}
