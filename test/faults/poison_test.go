package faults

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// TestPoisonKillsItsWorkers has a message whose worker's process dies of it each time, among others that are done,
// while output hosts are killed in between: it is dead after max deliveries, and nothing else is. An attempt that a
// kill of its output host interrupts does not count, at most three times.
func TestPoisonKillsItsWorkers(t *testing.T) {
	byCommands(t)
	waits(t)
	most, layout := 3, process.Layout{Stores: 1, Inputs: 1, Outputs: 2}
	if os.Getenv(longEnv) != "" {
		most, layout = 10, process.Layout{}
	}
	c := process.StartCluster(t, layout)
	c.Controller.Must("", "create", "queue", queue, "--min-replicas", "1")
	const count, poison = 60, 17
	r := emptyRun(t, c.Controller, "g")
	c.Controller.Must("", "create", "group", queue, "g", "--start", "earliest", "--lock-timeout", "8s", "--max-deliveries", strconv.Itoa(most)) // longer than the others take
	r.got["g"] = make(map[uint64]bool)
	if code := r.publish(count).Wait(); code != 0 {
		t.Fatalf("publish ended with %d", code)
	}
	dead := func() bool { _, dead := r.undone("g"); return dead > 0 }
	var attempts []int
	w := r.work(poison)
	for len(attempts) <= most+uncounted {
		attempt, came := r.poison(w, dead)
		if !came {
			break
		}
		if len(attempts) > 0 { // a worker that was killed before held others, too: twice, and their last attempt would wait for this worker
			process.Eventually(t, "the others are done", func() bool { undone, _ := r.undone("g"); return undone == 1 })
		}
		w.Kill()
		attempts = append(attempts, attempt)
		process.AwaitCheckpoints(t, c.Outputs...) // a first attempt that is in none may be forgotten
		from, victim := time.Now(), c.Outputs[len(attempts)%2]
		victim.Restart()
		c.AwaitHosts()
		r.down(victim.Name, from)
		w = r.work(poison)
	}
	process.Eventually(t, "nothing is left", func() bool { undone, _ := r.undone("g"); return undone == 0 })
	select {
	case attempt := <-w.poisoned:
		t.Errorf("the poison came as attempt %d, after %v", attempt, attempts)
	case <-time.After(time.Second):
	}
	w.Interrupt()
	if !slices.IsSorted(attempts) || len(slices.Compact(slices.Clone(attempts))) != len(attempts) || len(attempts) < most || len(attempts) > most+uncounted {
		t.Errorf("attempts %v, want %d to %d that grow", attempts, most, most+uncounted)
	}
	letters := 0
	for _, d := range deadLettersOf(t, c.Controller.Client(), "g") {
		letters++
		if body := string(d.Message.Body); body != strconv.Itoa(poison) || d.Attempts < most || d.Attempts > most+uncounted || d.Reason != "lock_timeout" {
			t.Errorf("dead letter %s with %d attempts, %s; want %d with %d to %d", body, d.Attempts, d.Reason, poison, most, most+uncounted)
		}
		r.history.Received = append(r.history.Received, verify.Received{
			Key: key(poison), Group: "g", CRC: crc32.Checksum(d.Message.Body, castagnoli), Receipt: d.Origin, Attempt: d.Attempts, Settled: verify.Dead,
			At: d.DeadSince.Add(time.Millisecond),
		})
	}
	if letters != 1 {
		t.Errorf("%d dead letters, want one", letters)
	}
	r.check()
	r.row("a poison message kills its worker each time, output hosts killed in between", fmt.Sprintf("attempts %v", attempts))
}

// uncounted is how many attempts of a message, which crashes of its output host interrupted, do not count.
const uncounted = 3

// poison waits until the worker gets the poison, which it answers the attempt of, or until the poison is dead.
func (r *run) poison(w *worker, dead func() bool) (attempt int, came bool) {
	r.t.Helper()
	process.Eventually(r.t, "the poison came, or is dead", func() bool {
		select {
		case attempt = <-w.poisoned:
			came = true
		default:
		}
		return came || dead()
	})
	return attempt, came
}

// worker is a process that dies of one message, and does the others: `columba consume --ack tokens`, whose tokens are
// acknowledged but for the poison's.
type worker struct {
	*process.Command
	poisoned chan int // its attempt
}

func (r *run) work(poison uint64) *worker {
	r.t.Helper()
	w := &worker{poisoned: make(chan int, 16)}
	cl := r.server.Client()
	w.Command = r.server.Launch(nil, func(line []byte) {
		var m struct {
			Payload, Extent, Token string
			Seq                    core.Seq
			Attempt                int
		}
		err := json.Unmarshal(line, &m)
		at, rerr := client.ParseReceipt(m.Extent + ":" + strconv.FormatUint(uint64(m.Seq), 10))
		n, perr := strconv.ParseUint(m.Payload, 10, 64)
		if err != nil || rerr != nil || perr != nil {
			r.t.Errorf("consume said %q: %v %v %v", line, err, rerr, perr)
			return
		}
		how := verify.Dropped
		if n == poison {
			w.poisoned <- m.Attempt // there is room for more than it can get
		} else if refused, err := cl.Ack(r.t.Context(), m.Token); err == nil && len(refused) == 0 {
			how = verify.Done
		}
		r.mu.Lock()
		r.history.Received = append(r.history.Received, verify.Received{
			Key: key(n), Group: "g", Consumer: "worker", CRC: crc32.Checksum([]byte(m.Payload), castagnoli), Receipt: at, Attempt: m.Attempt,
			Settled: how, At: time.Now(),
		})
		r.mu.Unlock()
	}, "consume", queue, "g", "--ack", "tokens", "-o", "json")
	return w
}
