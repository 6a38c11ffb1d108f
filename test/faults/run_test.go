package faults

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

const (
	queue = "/t/a"
	// slack is how long before a crash an acknowledgement may be forgotten (a checkpoint a second, on a busy machine), and
	// how long after one a publisher still tries again.
	slack = 3 * time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// run is a server with a queue, its groups, and the history of what happens to them.
type run struct {
	t      testing.TB
	server *process.Server
	groups []string

	mu        sync.Mutex
	history   verify.History
	acked     int
	got       map[string]map[uint64]bool // per group, by line
	outcomes  map[verify.Outcome]int
	refusals  map[core.Code]int          // of publishes
	lastAcked map[core.ExtentID]core.Seq // highest that a publisher was told
	report    *verify.Report             // of check
}

func emptyRun(t testing.TB, server *process.Server, groups ...string) *run {
	return &run{
		t: t, server: server, groups: groups, got: make(map[string]map[uint64]bool),
		outcomes: make(map[verify.Outcome]int), refusals: make(map[core.Code]int), lastAcked: make(map[core.ExtentID]core.Seq),
	}
}

func newRun(t testing.TB, server *process.Server, groups ...string) *run {
	t.Helper()
	r := emptyRun(t, server, groups...)
	server.Must("", "create", "queue", queue)
	for _, g := range groups {
		server.Must("", "create", "group", queue, g, "--start", "earliest", "--lock-timeout", "5s")
		r.got[g] = make(map[uint64]bool)
	}
	return r
}

// lines is what `seq 1 n` prints.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i + 1))
		b.WriteByte('\n')
	}
	return b.String()
}

func key(seq uint64) verify.Key { return verify.Key{Queue: queue, Publisher: "seq", Seq: seq} }

// publish starts `seq 1 n | columba publish`, whose outcomes go to the ledger.
func (r *run) publish(n int, flags ...string) *process.Command {
	r.t.Helper()
	args := append([]string{"publish", queue, "-o", "json"}, flags...)
	return r.server.Launch(strings.NewReader(lines(n)), func(line []byte) {
		var out struct {
			Line    uint64
			OK      bool
			Outcome verify.Outcome
		}
		if err := json.Unmarshal(line, &out); err != nil {
			r.t.Errorf("publish said %q: %v", line, err)
			return
		}
		if out.OK {
			out.Outcome = verify.Acked
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if out.OK {
			r.acked++
		}
		r.outcomes[out.Outcome]++
		r.history.Published = append(r.history.Published, verify.Published{
			Key: key(out.Line), CRC: crc32.Checksum(strconv.AppendUint(nil, out.Line, 10), castagnoli), Outcome: out.Outcome, At: time.Now(),
		})
	}, args...)
}

// consume starts a `columba consume`, whose messages go to the history.
func (r *run) consume(group string, number int, flags ...string) *process.Command {
	r.t.Helper()
	args := append([]string{"consume", queue, group, "-o", "json"}, flags...)
	return r.server.Launch(nil, func(line []byte) {
		var m struct {
			Payload string
			Extent  string
			Seq     core.Seq
			Attempt int
		}
		err := json.Unmarshal(line, &m)
		at, rerr := client.ParseReceipt(m.Extent + ":" + strconv.FormatUint(uint64(m.Seq), 10))
		n, perr := strconv.ParseUint(m.Payload, 10, 64)
		if err != nil || rerr != nil || perr != nil {
			r.t.Errorf("consume said %q: %v %v %v", line, err, rerr, perr)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got[group][n] = true
		r.history.Received = append(r.history.Received, verify.Received{
			Key: key(n), Group: group, Consumer: fmt.Sprintf("%s-%d", group, number), CRC: crc32.Checksum([]byte(m.Payload), castagnoli),
			Receipt: at, Attempt: m.Attempt, Settled: verify.Done, At: time.Now(),
		})
	}, args...)
}

func (r *run) acknowledged() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// complete reports whether every group has every message that was acknowledged.
func (r *run) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, got := range r.got {
		if len(got) < r.acked {
			return false
		}
		for _, p := range r.history.Published {
			if p.Outcome == verify.Acked && !got[p.Seq] {
				return false
			}
		}
	}
	return true
}

// crash kills the server and starts it again.
func (r *run) crash() {
	r.t.Helper()
	from := time.Now()
	r.server.Restart()
	r.down("server", from)
}

// down writes down that something was down since from until now.
func (r *run) down(what string, from time.Time) {
	r.noted(verify.Crash{What: what, From: from, To: time.Now()})
}

// away writes down that something stood still or was cut off since from, and goes on now.
func (r *run) away(what string, from time.Time) {
	r.noted(verify.Crash{What: what, From: from, To: time.Now(), Split: true})
}

func (r *run) noted(c verify.Crash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Crashes = append(r.history.Crashes, c)
}

// depth is what the server counts of a group.
type depth struct {
	Ready    uint64 `json:"ready"`
	InFlight uint64 `json:"in_flight"`
	Delayed  uint64 `json:"delayed"`
	Dead     uint64 `json:"dead"`
	Unknown  uint64 `json:"unknown_extents"` // of which it is not known what is left
}

func (r *run) depth(group string) depth {
	r.t.Helper()
	return process.Decode[depth](r.t, r.server.Ask("depth", queue, group, "-o", "json"))[0]
}

// undone is what a group has left, by the server's count, or may have left.
func (r *run) undone(group string) (undone, dead uint64) {
	r.t.Helper()
	d := r.depth(group)
	return d.Ready + d.InFlight + d.Delayed + d.Unknown, d.Dead
}

// drain waits until every group has everything and nothing is left; it gives the consumers the time to be wrong in.
func (r *run) drain() {
	r.t.Helper()
	process.Eventually(r.t, "every group has every acknowledged message", r.complete)
	for _, g := range r.groups {
		process.Eventually(r.t, "the server counts nothing left for "+g, func() bool { undone, _ := r.undone(g); return undone == 0 })
	}
}

// check is the verdict of the oracle. A controller that takes over queues counts them anew, so it waits for a count
// that is whole.
func (r *run) check() *verify.Report {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		var d depth
		process.Eventually(r.t, "the server knows what is left for "+g, func() bool { d = r.depth(g); return d.Unknown == 0 })
		undone, dead := d.Ready+d.InFlight+d.Delayed, d.Dead
		r.history.Groups = append(r.history.Groups, verify.Left{Queue: queue, Group: g, Undone: undone, Dead: dead})
	}
	r.report = verify.Check(&r.history, slack)
	r.t.Logf("%d crashes; publishers were told %v %v\n%s", len(r.history.Crashes), r.outcomes, r.refusals, r.report)
	if !r.report.OK() {
		r.t.Errorf("the history is wrong")
	}
	return r.report
}
