package faults

import (
	"fmt"
	"hash/crc32"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/test/sabotage"
	"github.com/columbamq/columba/tools/verify"
)

// TestDelaysOverKills publishes messages for later and gives some of them back for later, while everything is killed at
// once, again and again: none is lost, and none comes before its time.
func TestDelaysOverKills(t *testing.T) {
	server := process.StartServer(t)
	d := newDelays(t, server, 5*time.Second)
	d.run(120, 2, func() { server.Restart() })
	d.row("messages with delays of 1 s … 5 s, one server killed twice", d.figures())
}

// TestClusterDelaysByAClockAhead is the same in a cluster, with delays of 1 s … 10 min: with clocks that are right, and
// with one host's clock 5 minutes ahead. None comes earlier than that host's clock says.
func TestClusterDelaysByAClockAhead(t *testing.T) {
	long(t)
	longest := time.Duration(scaled(t, 600)) * time.Second
	ahead := longest / 2
	program := aheadProgram(t)
	const store, input, output = 1, 4, 6 // where they are in process.Cluster
	for _, x := range []struct {
		name   string
		host   int
		timers bool          // whether the clock decides when what was published with a delay is due
		nacks  time.Duration // what was given back for longer than that may come early by it: it is parked, an input host sees whether it is due, and it waits in a store
	}{
		{"no host", -1, false, math.MaxInt64}, {"a store", store, true, parkedAfter}, {"an input host", input, false, parkedAfter}, {"an output host", output, false, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := process.StartCluster(t, process.Layout{Program: program, Place: func(i int) process.Net {
				n := process.Net{Host: "127.0.0.1"}
				if i == x.host {
					n.Prefix = []string{"env", fmt.Sprintf("%s=%d", aheadEnv, int(ahead.Seconds()))}
				}
				return n
			}})
			if x.host >= 0 {
				if by := clockOf(t, c.All()[x.host]); by < ahead-10*time.Second || by > ahead+10*time.Second {
					t.Fatalf("the clock of %s is ahead by %s, want %s", x.name, by, ahead)
				}
			}
			d := newDelays(t, c.Controller, longest)
			if x.timers {
				d.timers = ahead
			}
			d.nackedFor, d.nacks = x.nacks, ahead
			d.patience = ahead
			d.run(400, 3, func() {
				all := c.All()
				process.KillAll(all...)
				for _, s := range all {
					s.Begin()
				}
				for _, s := range all {
					s.Await()
				}
				c.AwaitHosts()
			})
			d.row(fmt.Sprintf("messages with delays of 1 s … %s, everything killed at once, the clock of %s %s ahead", longest, x.name, ahead), d.figures())
		})
	}
}

// parkedAfter is the longest wait in the memory of an output host: what is given back for longer is parked.
const parkedAfter = 30 * time.Second

// delays is messages for later, and what is known of when each may come.
type delays struct {
	*load
	longest   time.Duration
	timers    time.Duration // what was published may come earlier by that
	nacks     time.Duration // what was given back for longer than nackedFor may come earlier by that
	nackedFor time.Duration
	patience  time.Duration // what may come later than all is due

	mu     sync.Mutex
	wait   map[string]waiting // by body
	killed []time.Time        // the beginnings and ends of kills
	latest time.Duration      // after its time came the latest of what no kill held up
	early  int
	last   time.Time // when the last one is due
}

// waiting is what the next delivery of a message waits for.
type waiting struct {
	due    time.Time
	may    time.Duration // it may be early by that
	nacked time.Time     // zero: it was not
}

func newDelays(t *testing.T, server *process.Server, longest time.Duration) *delays {
	t.Helper()
	server.Must("", "create", "queue", queue)
	d := &delays{longest: longest, nackedFor: math.MaxInt64, wait: make(map[string]waiting)}
	d.load = newLoadOf(t, server, 0, []string{"later"}, "--lock-timeout", "5s", "--max-deliveries", "unlimited")
	d.settle = d.came
	return d
}

// some is a delay from a second to most: as many from one to two seconds as from most/2 to most.
func (d *delays) some(most time.Duration) time.Duration {
	part := float64(d.random(1000)) / 1000
	return time.Duration(float64(time.Second) * math.Pow(most.Seconds(), part))
}

// run publishes n messages, kills so often, and waits until all have come.
func (d *delays) run(n, kills int, kill func()) {
	d.t.Helper()
	d.start(0, 2)
	p, err := d.client.Publisher(d.t.Context(), queue)
	if err != nil {
		d.t.Fatal(err)
	}
	publish := func(from, to int) {
		for seq := from; seq <= to; seq++ {
			body := fmt.Appendf(nil, "p0/%d/", seq)
			delay := d.some(d.longest)
			d.mu.Lock()
			due := time.Now().Add(delay)
			d.wait[string(body)] = waiting{due: due, may: d.timers}
			if due.After(d.last) {
				d.last = due
			}
			d.mu.Unlock()
			crc := crc32.Checksum(body, castagnoli)
			if err := p.PublishAsync(d.t.Context(), client.Message{Body: body, Delay: delay}, func(r client.Receipt, err error) { d.told("p0", uint64(seq), crc, r, err) }); err != nil {
				d.t.Fatal(err)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	end := time.Now().Add(d.longest)
	for i := range kills {
		publish(1+i*n/kills, (i+1)*n/kills)
		<-time.After(min(d.longest/10, 10*time.Second) + time.Duration(d.random(1500))*time.Millisecond)
		from := time.Now()
		d.note()
		kill()
		d.note()
		d.down("everything", from)
	}
	if err := p.Close(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	process.EventuallyWithin(d.t, time.Until(end)+d.longest+2*d.patience+process.Patience, "all has come", func() bool {
		<-time.After(time.Second) // each look is a process
		undone, _ := d.undone("later")
		return undone == 0
	})
	d.finish()
	if d.early > 0 {
		d.t.Errorf("%d deliveries came before their time", d.early)
	}
}

func (d *delays) note() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killed = append(d.killed, time.Now())
}

// forgotten reports whether what a consumer said may have been lost in a kill.
func (d *delays) forgotten(at time.Time) bool {
	for _, k := range d.killed {
		if k.After(at) && k.Before(at.Add(slack)) {
			return true
		}
	}
	return false
}

// came judges a delivery, and gives one of two back, once, for later.
func (d *delays) came(_ string, got *client.Delivery) (verify.Settled, error) {
	d.mu.Lock()
	w, known := d.wait[string(got.Body)]
	now := time.Now()
	by := now.Sub(w.due)
	const unit = 2 * time.Millisecond // times are in milliseconds, and read one after the other
	switch {
	case !known:
		d.t.Errorf("%q came, and was not published", got.Body)
	case by < -w.may-unit && (w.nacked.IsZero() || !d.forgotten(w.nacked)):
		if d.early++; d.early < 10 {
			d.t.Errorf("%s came %s before its time, as attempt %d, nacked %v", got.Body, -by, got.Attempt, !w.nacked.IsZero())
		}
	case !d.near(w.due, now):
		d.latest = max(d.latest, by)
	}
	if !w.nacked.IsZero() || d.random(2) == 0 {
		d.mu.Unlock()
		return verify.Done, got.Ack()
	}
	delay, how := d.some(max(time.Second, d.longest/2)), verify.Back
	w = waiting{due: now.Add(delay), nacked: now}
	if delay > d.nackedFor {
		w.may = d.nacks
	}
	if delay > parkedAfter {
		how = verify.RetryQueued
	}
	d.wait[string(got.Body)] = w
	d.mu.Unlock()
	return how, got.Nack(client.After(delay), client.Reason("later"))
}

// near reports whether a kill was between two times, or shortly before.
func (d *delays) near(from, to time.Time) bool {
	for _, k := range d.killed {
		if k.After(from.Add(-2*slack)) && k.Before(to) {
			return true
		}
	}
	return false
}

func (d *delays) figures() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("%d too early; at most %s late but for kills", d.early, d.latest.Round(time.Millisecond))
}

// clockOf is by how much a server's clock is ahead, by what it logged when it started a moment ago.
func clockOf(t *testing.T, s *process.Server) time.Duration {
	t.Helper()
	_, text, _ := strings.Cut(s.Log(), "time=")
	text, _, _ = strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatalf("the log of %s begins with no time: %v", s.Name, err)
	}
	return time.Until(at)
}

// aheadEnv says by how many seconds the clock of a process of aheadProgram is ahead.
const aheadEnv = "COLUMBA_TEST_CLOCK_AHEAD"

// aheadProgram builds the binary with a time.Now that can be ahead.
func aheadProgram(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	dir, root := t.TempDir(), strings.TrimSpace(string(out))
	overlay, err := sabotage.Overlay(root, dir, []sabotage.Edit{
		{File: "src/time/time.go", Old: "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", New: "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += clockAhead\n"},
		{File: "src/time/sleep.go", Old: "package time\n", New: "package time\n\nimport \"syscall\"\n"},
		{File: "src/time/sleep.go", Old: "func Sleep(d Duration)\n", New: strings.Join([]string{
			"func Sleep(d Duration)", "",
			"var clockAhead = func() (n int64) {", `	text, _ := syscall.Getenv("` + aheadEnv + `")`,
			"	for _, c := range text {", "		n = 10*n + int64(c-'0')", "	}", "	return n", "}()", ""}, "\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "columba-ahead")
	if err := process.Build(program, "-overlay", overlay); err != nil {
		t.Fatal(err)
	}
	return program
}
