package cluster

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

var (
	stillAt  = flag.Int("stillat", 0, "the call at which TestStandstill stops the controller; 0: some")
	stillAll = flag.Bool("stillall", false, "TestStandstill stops the controller at each call")
)

const (
	standsFor = time.Minute
	// looksAway is after how long the other hosts miss a process that stands still.
	looksAway = 4 * time.Second
	// lateTimers is for how long after it goes on a process does not notice that deadlines have passed meanwhile.
	lateTimers = 100 * time.Millisecond
)

// standstill stops a controller at a call of a duty: its calls to the metadata and to hosts do not go out, whatever
// their deadlines, and it hears nothing. The clock goes on. When it goes on, calls to the metadata are done that were
// on their way, or leave before its timers fire.
type standstill struct {
	w     *world
	at    func(calls []string) bool // whether it stops at the last of these
	duty  []string
	mu    sync.Mutex
	id    core.HostID
	calls []string      // of the duty
	stops chan struct{} // closed when it stands still
	wake  chan struct{} // closed when it goes on
	over  bool          // it has stopped, or the duty is done
	free  func()
	woke  time.Time // set before wake is closed
}

// arm begins to count the calls of a controller.
func (s *standstill) arm(id core.HostID) {
	s.id, s.stops, s.wake = id, make(chan struct{}), make(chan struct{})
	p := s.w.hosts[id].process
	op := func(o Op) bool { return s.call(o.Name + " " + o.Table) }
	p.meta.halt.Store(&op)
	packet := func(b []byte) {
		if line, _, _ := bytes.Cut(b[:min(len(b), 200)], []byte(" HTTP/1.1")); bytes.HasPrefix(line, []byte("POST /")) {
			s.call("call " + string(line[bytes.LastIndexByte(line, '/')+1:]))
		} else {
			s.call("")
		}
	}
	p.port.sent.Store(&packet)
}

// call waits while the controller stands still; held: the deadline of the call does not count. The packet with the call
// at which it stops is on its way.
func (s *standstill) call(name string) (held bool) {
	s.mu.Lock()
	last := false
	if !s.over && slices.Contains(s.duty, name) {
		s.calls = append(s.calls, name)
		last = s.at(s.calls)
	}
	if last {
		s.over = true
		s.free = s.w.Hold(s.id)
		close(s.stops)
	}
	s.mu.Unlock()
	if last && strings.HasPrefix(name, "call ") {
		return false
	}
	select {
	case <-s.stops:
	default:
		return false
	}
	<-s.wake
	return time.Since(s.woke) < lateTimers
}

// until waits until the controller has stopped, or the duty is done. If it has stopped it goes on after a minute;
// meanwhile is called in between.
func (s *standstill) until(done func() bool, meanwhile func()) (stopped bool) {
	s.w.t.Helper()
	for end := time.Now().Add(20 * time.Minute); ; sleep(50 * time.Millisecond) {
		select {
		case <-s.stops:
			s.stands(meanwhile)
			return true
		default:
		}
		if done() {
			s.mu.Lock()
			stopped := s.over
			s.over = true
			s.mu.Unlock()
			if !stopped {
				return false
			}
		} else if time.Now().After(end) {
			s.w.t.Fatalf("the duty does not end; its calls were %v", s.calls)
		}
	}
}

func (s *standstill) stands(meanwhile func()) {
	began := time.Now()
	s.w.later(looksAway, func() { s.believe(1) })
	sleep(time.Second)
	meanwhile()
	sleep(standsFor - time.Since(began))
	s.free()
	s.woke = time.Now()
	close(s.wake)
	sleep(time.Second)
	s.believe(-1)
}

// believe has the other hosts miss the controller, or find it again.
func (s *standstill) believe(missing int) {
	for _, other := range s.w.All() {
		if other != s.id {
			s.w.ok(s.w.roster.suspect(other, s.id, missing))
		}
	}
}

// responsible is the controller that is responsible for a queue.
func (w *world) responsible(id core.QueueID) core.HostID {
	w.t.Helper()
	var all []core.HostID
	w.eventually("a queue has its controller", time.Minute, func() bool {
		all = w.acting.responsible(id.ID)
		return len(all) == 1
	})
	return all[0]
}

func (w *world) queueID(path string) core.QueueID {
	w.t.Helper()
	q, err := w.Client.Admin().GetQueue(w.t.Context(), path)
	w.ok(err)
	return q.ID
}

// stillDuty is a duty of a controller that stands still in it.
type stillDuty struct {
	name    string
	spec    core.QueueSpec
	options Options
	calls   []string
	each    bool // the last four updates of a table differ
	do      func(w *world, s *standstill) (stopped bool)
}

// TestStandstill stops the controller that seals, merges or retires for a minute, at a call of that duty, while two
// others take over. When it goes on it does no harm: no queue has two heads, no acknowledged message is lost, none is
// delivered again, no retired extent comes back, and an operation ends once. It stops at the last insert and before the
// last update of each table, in a retirement before the last four, or at each call.
//
//	go test ./test/cluster -run Standstill/merge -stillat=N
//	go test ./test/cluster -run Standstill -stillall -timeout 1h
func TestStandstill(t *testing.T) {
	rows := []string{"Get seal", "Insert seal", "Update seal", "Get extent", "List extent", "Put extent", "Remove extent"}
	seals := append(slices.Clone(rows), "Get head", "Insert head", "Update head", "PutAll work", "Remove work", "Put work", "call Fence", "call Seal", "call Copy")
	merges := append(slices.Clone(rows), "Get operation", "Insert operation", "Update operation", "Delete operation", "Get group", "PutAll work", "call SelectDeadLetters", "call Seal", "call Fence", "call HearShares", "call Assign")
	retires := append(slices.Clone(rows), "Update group", "Get group", "List group", "List done", "Get queue", "Put audit", "Remove work", "Remove done", "Remove assignment", "Remove checkpoint", "call Remove")
	for _, d := range []stillDuty{
		{"seal, cp", core.QueueSpec{Path: queue, Consistency: core.CP}, Options{Input: rollAt(1_000)}, seals, false, stillSeal},
		{"seal, ap", core.QueueSpec{Path: queue}, Options{Input: rollAt(1_000)}, seals, false, stillSeal},
		{"merge", core.QueueSpec{Path: queue}, Options{Input: rollAt(2_000)}, merges, false, stillMerge},
		{"merge of some", core.QueueSpec{Path: queue}, Options{Input: rollAt(2_000)}, merges, false, stillMergeSome},
		{"retirement", core.QueueSpec{Path: queue}, Options{Input: rollAt(1_000), Controller: func(c *controller.Config) { c.RetainEvery, c.MinOpenExtents = 10*time.Second, 1 }}, retires, true, stillRetire},
	} {
		t.Run(d.name, func(t *testing.T) {
			underrace.One(t, d.name == "merge")
			t.Parallel()
			switch {
			case *stillAt > 0:
				d.try(t, nthCall(*stillAt))
			case *stillAll:
				for n := 1; ; n++ {
					if stopped, _ := d.try(t, nthCall(n)); !stopped || t.Failed() {
						t.Logf("the controller was stopped at %d calls", n-1)
						return
					}
				}
			default:
				_, calls := d.try(t, func([]string) bool { return false })
				for i, at := range stops(calls, d.each) {
					if i%underrace.Of(3, 1) == 0 {
						d.try(t, nthOf(calls[at], count(calls[:at+1], calls[at])))
					}
				}
			}
		})
	}
}

func nthCall(n int) func([]string) bool { return func(calls []string) bool { return len(calls) == n } }

// nthOf stops at the n-th call of a name.
func nthOf(name string, n int) func([]string) bool {
	return func(calls []string) bool { return calls[len(calls)-1] == name && count(calls, name) == n }
}

func count(calls []string, name string) (n int) {
	for _, c := range calls {
		n += boolInt(c == name)
	}
	return n
}

// stops are where some calls insert a row, or read one to change it: the last time for each table, or the last four
// times.
func stops(calls []string, each bool) (out []int) {
	seen := make(map[string]int)
	for i := len(calls) - 1; i >= 0; i-- {
		how, table, _ := strings.Cut(calls[i], " ")
		if how != "Insert" && how != "Update" {
			continue
		}
		if seen[calls[i]]++; seen[calls[i]] > 1 && !each || seen[calls[i]] > 4 {
			continue
		}
		at := i
		for how == "Update" && at > 0 && calls[at] != "Get "+table {
			at--
		}
		out = append(out, at)
	}
	return out
}

// try does the duty once, and answers its calls to where the controller was stopped.
func (d stillDuty) try(t *testing.T, at func([]string) bool) (stopped bool, calls []string) {
	synctest.Test(t, func(t *testing.T) {
		var heads *oneHead
		var seen *witness
		o := d.options
		o.Stores, o.Controllers, o.Inputs, o.Outputs = 3, 3, 2, 2
		o.Meta = func(behind metadata.Store) metadata.Store {
			heads = newOneHead(behind)
			seen = newWitness(heads)
			return seen
		}
		s := &standstill{at: at, duty: d.calls}
		w := &world{Start(t, o), t}
		defer w.Close()
		defer func() {
			if t.Failed() {
				t.Logf("-stillat=%d: %s stood still at the last of these calls: %s", len(s.calls), s.id, strings.Join(s.calls, ", "))
			}
		}()
		seen.looksAt(w.Meta)
		s.w = w
		if _, err := w.Client.Admin().CreateQueue(t.Context(), d.spec); err != nil {
			t.Fatal(err)
		}
		sleep(12 * time.Second) // the controllers know each other
		stopped = d.do(w, s)
		wrong, _ := heads.findings()
		for _, x := range append(wrong, seen.findings()...) {
			t.Error(x)
		}
		if testing.Verbose() {
			t.Logf("%s, stopped %t: %d calls %v", s.id, stopped, len(s.calls), s.calls)
		}
		calls = slices.Clone(s.calls)
	})
	return stopped, calls
}
