package faults

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// TestPoisonKillsItsWorkers has a message whose worker's process dies of it each time, among others that are done, while output hosts are killed in between:
// it is dead after exactly max deliveries, and nothing else is.
func TestPoisonKillsItsWorkers(t *testing.T) {
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
	var attempts []int
	for len(attempts) < most {
		w := r.work(poison)
		select {
		case attempt := <-w.poisoned:
			if len(attempts) > 0 { // a worker that was killed before held others, too: twice, and their last attempt would wait for this worker
				process.Eventually(t, "the others are done", func() bool { undone, _ := r.undone("g"); return undone == 1 })
			}
			w.Kill()
			attempts = append(attempts, attempt)
		case <-time.After(process.Patience):
			t.Fatalf("the poison did not come after the attempts %v", attempts)
		}
		process.AwaitCheckpoints(t, c.Outputs...) // a first attempt that is in none may be forgotten
		from, victim := time.Now(), c.Outputs[len(attempts)%2]
		victim.Restart()
		c.AwaitHosts()
		r.down(victim.Name, from)
	}
	process.Eventually(t, "the poison is a dead letter", func() bool { _, dead := r.undone("g"); return dead > 0 })
	w := r.work(poison)
	process.Eventually(t, "nothing is left", func() bool { undone, _ := r.undone("g"); return undone == 0 })
	select {
	case attempt := <-w.poisoned:
		t.Errorf("the poison came as attempt %d, after %v", attempt, attempts)
	case <-time.After(time.Second):
	}
	w.Interrupt()
	for i, n := range attempts {
		if n != i+1 {
			t.Errorf("attempts %v, want 1 … %d", attempts, most)
			break
		}
	}
	letters := 0
	for _, d := range deadLettersOf(t, c.Controller.Client(), "g") {
		letters++
		if body := string(d.Message.Body); body != strconv.Itoa(poison) || d.Attempts != most || d.Reason != "lock_timeout" {
			t.Errorf("dead letter %s with %d attempts, %s; want %d with %d", body, d.Attempts, d.Reason, poison, most)
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

// worker is a process that dies of one message, and does the others: `columba consume --ack tokens`, whose tokens are acknowledged but for the poison's.
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
