package inputhost

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
)

// sendFor publishes a message that is due after a delay, or at a time, or at once.
func (p *client) sendFor(delay time.Duration, at time.Time) (body string) {
	p.r.t.Helper()
	p.n++
	body = fmt.Sprintf("%s-%05d", p.name, p.n)
	r := wire.Record{Payload: []byte(body), Delay: delay.Milliseconds()}
	if !at.IsZero() {
		r.DeliverAt = at.UnixMilli()
	}
	err := p.pub.Append(p.r.t.Context(), &r, 0, publish.DoneFunc(func(_ core.MessageID, at core.Receipt, err error) { p.r.note(body, at, err) }))
	if err != nil {
		p.r.t.Fatal(err)
	}
	return body
}

// timersOf are the open timer extents of a queue.
func (r *harness) timersOf(path string) (out []core.Extent) {
	for _, e := range r.open(path) {
		if e.Kind == core.KindTimer {
			out = append(out, e)
		}
	}
	return out
}

// stored is the record at a receipt as a store has it, and its extent. Of log extents the fakes keep no records.
func (r *harness) stored(at core.Receipt) (e core.Extent, record wire.Record) {
	r.t.Helper()
	for _, s := range r.stores {
		s.mu.Lock()
		x := s.extents[at.Extent]
		if x != nil && x.extent.ID == at.Extent {
			e = x.extent
			if int(at.Seq) <= len(x.records) {
				if _, err := wire.DecodeRecord(x.records[at.Seq-1], &record); err != nil {
					r.t.Error(err)
				}
			}
		}
		s.mu.Unlock()
	}
	return e, record
}

// where is the receipt of a message that was acknowledged.
func (r *harness) where(body string) core.Receipt {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.mu.outcomes[body]
	if !ok || o.err != nil {
		r.t.Fatalf("%s: %v, known %v", body, o.err, ok)
	}
	return o.at
}

// TestHost_MixedChunks publishes messages for now and for later side by side, in an AP and in a CP queue: each is
// acknowledged once, with the extent of its kind and horizon that holds it, and what a timer extent holds says when it
// is due by the host's clock.
func TestHost_MixedChunks(t *testing.T) {
	for path, in := range map[string]func(*testing.T, func(*harness)){
		path:      func(t *testing.T, f func(*harness)) { bubble(t, 4, nil, f) },
		chainPath: func(t *testing.T, f func(*harness)) { chained(t, nil, f) },
	} {
		t.Run(path, func(t *testing.T) {
			in(t, func(r *harness) {
				p := r.publisher("p", path)
				type want struct {
					horizon core.Horizon
					due     time.Time
				}
				wants := make(map[string]want)
				delays := []time.Duration{0, time.Millisecond, time.Minute, time.Hour, 2 * time.Hour, 20 * 24 * time.Hour, 300 * 24 * time.Hour, core.MaxAhead}
				for i := range 400 {
					delay, at := delays[i*7%len(delays)], time.Time{}
					w := want{due: time.Now().Add(delay)}
					if delay > 0 {
						lane, _ := core.HorizonOf(delay.Milliseconds())
						w.horizon = core.HorizonAt(lane)
					}
					switch {
					case i%5 == 0 && delay > 0:
						delay, at = 0, w.due
					case i%11 == 0:
						delay, at, w.horizon = 0, time.Now().Add(-time.Second), ""
					}
					wants[p.sendFor(delay, at)] = w
					if i%50 == 49 {
						time.Sleep(5 * time.Millisecond)
					}
				}
				p.flush()
				r.all(p.n)
				seen := make(map[core.Receipt]string)
				for body, w := range wants {
					at := r.where(body)
					if other, twice := seen[at]; twice {
						t.Errorf("%s and %s are both at %s", body, other, at)
					}
					seen[at] = body
					e, record := r.stored(at)
					switch {
					case e.Horizon != w.horizon || (e.Kind == core.KindTimer) != (w.horizon != ""):
						t.Errorf("%s is in a %s extent of horizon %q, want %q", body, e.Kind, e.Horizon, w.horizon)
					case e.Kind == core.KindLog && e.Chain == 0 && path == chainPath, e.Kind == core.KindTimer && e.Chain != 0:
						t.Errorf("%s is in a %s extent at place %d of a chain", body, e.Kind, e.Chain)
					case w.horizon == "":
					case string(record.Payload) != body || record.DeliverAt != w.due.UnixMilli() || record.Delay != 0:
						t.Errorf("at the receipt of %s is %s, due at %d, delay %d; want %d", body, record.Payload, record.DeliverAt, record.Delay, w.due.UnixMilli())
					}
				}
				if n := len(r.timersOf(path)); n != core.Horizons {
					t.Errorf("%d timer extents are open, want one for each horizon", n)
				}
			})
		})
	}
}

// TestHost_TooFarAhead: what is due beyond a year is refused by itself; its neighbours are stored.
func TestHost_TooFarAhead(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		fine := []string{p.sendFor(0, time.Time{}), p.sendFor(time.Minute, time.Time{})}
		far := []string{p.sendFor(core.MaxAhead+time.Millisecond, time.Time{}), p.sendFor(0, time.UnixMilli(wire.MaxMillis)), p.sendFor(time.Duration(1<<63-1), time.Time{})}
		fine = append(fine, p.sendFor(0, time.Time{}), p.sendFor(core.MaxAhead, time.Time{}))
		p.flush()
		for _, body := range fine {
			r.where(body)
		}
		for _, body := range far {
			if o := r.mu.outcomes[body]; core.CodeOf(o.err) != core.CodeBadArgument {
				t.Errorf("%s: %v, want a bad argument", body, o.err)
			}
		}
		if n := r.host.inFlight.Load(); n != 0 {
			t.Errorf("%d bytes count as in flight", n)
		}
	})
}

// TestHost_TimerExtentFails: one of the extents that a publisher's messages went to ends early; what was under way
// there is appended to another of its horizon, the rest is where it was, and each is acknowledged once.
func TestHost_TimerExtentFails(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		send := func() (hour, day, plain string) {
			return p.sendFor(time.Minute, time.Time{}), p.sendFor(10*time.Hour, time.Time{}), p.sendFor(0, time.Time{})
		}
		send()
		p.flush()
		for _, s := range r.stores {
			s.set(func() { s.delay = 50 * time.Millisecond })
		}
		hour, day, plain := send()
		time.Sleep(10 * time.Millisecond)
		var failed core.ExtentID
		for _, q := range r.host.list() {
			for _, w := range q.list(nil) {
				if w.Extent.Horizon == core.HorizonHour {
					failed = w.Extent.ID
					w.Fail("", core.Errorf(core.CodeUnavailable, "the test ends it"))
				}
			}
		}
		p.flush()
		r.all(p.n)
		if at := r.where(hour); at.Extent == failed || at.Seq != 1 {
			t.Errorf("what was under way in the extent that failed is at %s", at)
		}
		for body, seq := range map[string]core.Seq{day: 2, plain: 2} {
			if at := r.where(body); at.Seq != seq {
				t.Errorf("%s is at %s, want it where it was sent first", body, at)
			}
		}
		if s := r.ctl.seals[failed]; s == nil || s.due.IsZero() || s.due.After(time.Now().Add(time.Minute)) {
			t.Errorf("the seal of a timer extent says %v for when its last record is due", s)
		}
		for _, e := range r.timersOf(path) {
			if _, record := r.stored(r.where(hour)); e.Horizon == core.HorizonHour && string(record.Payload) != hour {
				t.Errorf("the new extent holds %q", record.Payload)
			}
		}
	})
}

// answers notes what becomes of chunks.
type answers struct {
	sync.Mutex
	got map[uint64]writer.Outcome
}

func (a *answers) Answer(c writer.Chunk, o writer.Outcome) {
	a.Lock()
	defer a.Unlock()
	if _, twice := a.got[c.First]; twice {
		panic("a chunk was answered twice")
	}
	a.got[c.First] = o
}

func (a *answers) Gone() bool { return false }

type noHold struct{}

func (noHold) Retain()  {}
func (noHold) Release() {}

// TestHost_TimerExtentsRoll publishes more timers than one extent may hold: none holds more, and all are acknowledged.
func TestHost_TimerExtentsRoll(t *testing.T) {
	bubble(t, 1, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.send()
		p.flush()
		q := r.host.list()[0]
		const count = 30_000
		record, err := wire.AppendRecord(nil, &wire.Record{DeliverAt: time.Now().Add(time.Minute).UnixMilli()})
		if err != nil {
			t.Fatal(err)
		}
		records := slices.Repeat(record, count)
		got := &answers{got: make(map[uint64]writer.Outcome)}
		for i := range uint64(9) {
			first := 1 + i*count
			q.publishTimers(0, writer.Chunk{
				Records: records, Hold: noHold{}, Count: count, First: first, Arrived: time.Now(), From: got,
				Part: &writer.Part{Runs: []writer.Run{{First: first, Count: count}}, Due: 1},
			})
		}
		time.Sleep(time.Second)
		held := make(map[core.ExtentID]core.Seq)
		got.Lock()
		for first, o := range got.got {
			if o.Status != wire.AckOK {
				t.Errorf("records from %d: %+v", first, o)
			}
			held[o.Extent] += count
		}
		got.Unlock()
		total := core.Seq(0)
		for id, n := range held {
			total += n
			if n > core.MaxTimerRecords {
				t.Errorf("extent %s holds %d records; %d are allowed", id, n, core.MaxTimerRecords)
			}
		}
		if total != 9*count || len(held) != 3 {
			t.Errorf("%d records in %d extents, want %d in 3", total, len(held), 9*count)
		}
		if n := len(r.timersOf(path)); n > 1 {
			t.Errorf("%d timer extents of one horizon are open", n)
		}
	})
}

// TestHost_TimerExtentsOnDemand: a horizon has one extent, whatever the load and the number of publishers, while it is
// used, and nothing is left of it afterwards. A queue that takes no messages any more ends its timer extents, too.
func TestHost_TimerExtentsOnDemand(t *testing.T) {
	bubble(t, 3, func(c *Config) { c.ExtentRate = 1 }, func(r *harness) {
		var all []*client
		for i := range 5 {
			all = append(all, r.publisher(fmt.Sprint(i), path))
		}
		n := 0
		for range 200 {
			for _, p := range all {
				p.sendFor(time.Minute, time.Time{})
				n++
			}
			time.Sleep(20 * time.Millisecond)
			if open := len(r.timersOf(path)); open > 1 {
				t.Fatalf("%d extents of one horizon are open", open)
			}
		}
		for _, p := range all {
			p.flush()
		}
		r.all(n)
		if len(r.timersOf(path)) != 1 {
			t.Error("no timer extent is open right after the load")
		}
		time.Sleep(2 * time.Minute)
		if open, queues := len(r.open(path)), len(r.host.list()); open != 0 || queues != 1 {
			t.Errorf("%d extents of %d queues after it was idle", open, queues)
		}
		all[0].sendFor(time.Minute, time.Time{})
		all[0].flush()
		r.all(n + 1)
		id := r.host.list()[0].id
		r.set(id, core.StatusReceiveOnly)
		time.Sleep(3 * time.Second)
		if open := r.open(path); len(open) != 0 {
			t.Errorf("a queue that takes no messages has open extents: %v", open)
		}
	})
}

// TestHost_TimersDrain: a host that stops seals its timer extents with the others.
func TestHost_TimersDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &harness{t: t}
		r.start(3, nil)
		p := r.publisher("p", path)
		p.sendFor(time.Minute, time.Time{})
		p.sendFor(0, time.Time{})
		p.flush()
		r.all(2)
		r.stop()
		if len(r.ctl.seals) != 2 {
			t.Errorf("%d extents are sealed, want both", len(r.ctl.seals))
		}
	})
}
