package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// load is publishers and consumers that write down what they see.
type load struct {
	*run
	client *client.Client
	rate   int                  // messages per second of each publisher
	random func(n int) int      // safe for concurrent use
	stay   func() time.Duration // of a consumer, before another takes its place
	settle func(group string, d *client.Delivery) (verify.Settled, error)

	stopPublishing, stopConsuming func() // and join them; again does nothing
}

// seeded is a source of choices: another one in each run, or that of COLUMBA_FAULTS_SEED.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("COLUMBA_FAULTS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("COLUMBA_FAULTS_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// newLoad makes a queue with two groups; the consumers of "work" are difficult.
func newLoad(t *testing.T, server *process.Server, rate int) *load {
	t.Helper()
	server.Must("", "create", "queue", queue)
	return newLoadOf(t, server, rate, []string{"work", "calm"}, "--lock-timeout", "3s", "--max-deliveries", "20")
}

// newLoadOf is the load of a queue that is there, with groups of its own.
func newLoadOf(t *testing.T, server *process.Server, rate int, groups []string, flags ...string) *load {
	t.Helper()
	l := &load{rate: rate, run: emptyRun(t, server, groups...)}
	var mu sync.Mutex
	r := seeded(t)
	l.random = func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	l.settle = l.difficult
	l.stay = func() time.Duration { return time.Duration(500+l.random(3000)) * time.Millisecond }
	for _, g := range l.groups {
		server.Must("", append([]string{"create", "group", queue, g, "--start", "earliest"}, flags...)...)
	}
	l.client = server.Client()
	return l
}

// start starts publishers, and consumers of each group. They end with finish, or with the test.
func (l *load) start(publishers, consumers int) {
	var group, others sync.WaitGroup
	publishing, cancelPublishing := context.WithCancel(l.t.Context())
	consuming, cancelConsuming := context.WithCancel(l.t.Context())
	l.stopPublishing = func() { cancelPublishing(); group.Wait() }
	l.stopConsuming = func() { cancelConsuming(); others.Wait() }
	l.t.Cleanup(func() { l.stopPublishing(); l.stopConsuming() })
	for i := range publishers {
		group.Go(func() { l.publisher(publishing, "p"+strconv.Itoa(i)) })
	}
	for _, g := range l.groups {
		for i := range consumers {
			others.Go(func() { l.consumer(consuming, g, g+"-"+strconv.Itoa(i)) })
		}
	}
}

// finish stops the publishers, waits until nothing is left, and is the verdict of the oracle.
func (l *load) finish() *verify.Report {
	l.t.Helper()
	l.stopPublishing()
	for _, g := range l.groups {
		var undone uint64
		// Dead letters and retries whose append had no answer when a host was killed are looked for until that time is over.
		process.EventuallyOr(l.t, dispatch.TransferDoubt+process.Patience, func() bool { undone, _ = l.undone(g); return undone == 0 }, func() string {
			return fmt.Sprintf("nothing is left for %s: %d are", g, undone)
		})
	}
	l.stopConsuming()
	for _, g := range l.groups {
		l.bury(g)
	}
	report := l.check()
	if l.t.Failed() {
		l.save()
	}
	return report
}

func (l *load) delivered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.history.Received)
}

// goesOn waits until n more messages are acknowledged.
func (l *load) goesOn(n int) {
	l.t.Helper()
	from := l.acknowledged()
	process.EventuallyOr(l.t, process.Patience, func() bool { return l.acknowledged() >= from+n }, func() string {
		return fmt.Sprintf("%d more messages are acknowledged: %d are", n, l.acknowledged()-from)
	})
}

// publisher publishes until ctx ends and waits for all outcomes.
func (l *load) publisher(ctx context.Context, name string) {
	p, err := l.client.Publisher(l.t.Context(), queue)
	if err != nil {
		l.t.Error(err)
		return
	}
	const pause = 10 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	began := time.Now()
	for seq := uint64(1); ctx.Err() == nil; seq++ {
		for ctx.Err() == nil && float64(seq) > time.Since(began).Seconds()*float64(l.rate) {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		body := fmt.Appendf(nil, "%s/%d/%s", name, seq, padding[:l.random(len(padding))])
		crc := crc32.Checksum(body, castagnoli)
		err := p.PublishAsync(ctx, client.Message{Body: body}, func(r client.Receipt, err error) { l.told(name, seq, crc, r, err) })
		if err != nil && ctx.Err() == nil {
			l.t.Errorf("publisher %s: %v", name, err)
			break
		}
	}
	end, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	if err := p.Close(end); err != nil {
		l.t.Errorf("close publisher %s: %v", name, err)
	}
}

var padding = strings.Repeat("x", 2000)

// told writes down what a publisher was told about a message.
func (l *load) told(name string, seq uint64, crc uint32, r client.Receipt, err error) {
	out := verify.Acked
	switch {
	case err != nil && core.CodeOf(err).Class() == core.ClassUnknown:
		out = verify.Unknown
	case err != nil:
		out = verify.Failed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.Published = append(l.history.Published, verify.Published{
		Key: verify.Key{Queue: queue, Publisher: name, Seq: seq}, CRC: crc, Outcome: out, At: time.Now(),
	})
	l.outcomes[out]++
	if err != nil {
		l.refusals[core.CodeOf(err)]++
		return
	}
	l.acked++
	l.lastAcked[r.Extent] = max(l.lastAcked[r.Extent], r.Seq)
}

// consumer consumes until ctx ends; now and then it is closed and another one takes its place.
func (l *load) consumer(ctx context.Context, group, name string) {
	for ctx.Err() == nil {
		con, err := l.client.Consumer(ctx, queue, group, client.Prefetch(100))
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, client.ErrUnavailable) {
				l.t.Errorf("consumer %s: %v", name, err)
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		some, cancel := context.WithTimeout(ctx, l.stay())
		for d, err := range con.Deliveries(some) {
			if err != nil {
				l.t.Errorf("consumer %s: %v", name, err)
				break
			}
			l.take(group, name, d)
		}
		cancel()
		end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = con.Close(end) // the server may be down; what is not handed in comes again
		cancel()
	}
}

// take settles a delivery and writes it down.
func (l *load) take(group, name string, d *client.Delivery) {
	at := time.Now()
	how, err := l.settle(group, d)
	if err != nil {
		how = verify.Dropped
	}
	l.saw(group, name, d, how, at)
}

// difficult is how consumers of the group "work" settle; others acknowledge everything.
func (l *load) difficult(group string, d *client.Delivery) (verify.Settled, error) {
	switch n := l.random(200); {
	case group == "work" && n == 0:
		return verify.Back, d.Reject("no")
	case group == "work" && n == 1:
		return verify.Dropped, nil
	case group == "work" && n < 10:
		return verify.Back, d.Nack(client.After(time.Duration(l.random(500))*time.Millisecond), client.Reason("later"))
	}
	return verify.Done, d.Ack()
}

// saw writes a delivery down, and what its consumer did with it.
func (l *load) saw(group, name string, d *client.Delivery, how verify.Settled, at time.Time) {
	r := verify.Received{
		Group: group, Consumer: name, CRC: crc32.Checksum(d.Body, castagnoli), Receipt: d.Receipt, Attempt: d.Attempt, Settled: how, At: at,
	}
	if r.Key = keyOf(d.Body); r.Seq == 0 {
		l.t.Errorf("consumer %s got %.50q", name, d.Body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.Received = append(l.history.Received, r)
}

// keyOf reads what publisher wrote; its seq is 0 when it did not.
func keyOf(body []byte) verify.Key {
	parts := bytes.SplitN(body, []byte("/"), 3)
	if len(parts) != 3 {
		return verify.Key{}
	}
	seq, _ := strconv.ParseUint(string(parts[1]), 10, 64)
	return verify.Key{Queue: queue, Publisher: string(parts[0]), Seq: seq}
}

// bury writes down the dead letters of a group.
func (l *load) bury(group string) {
	l.t.Helper()
	for _, d := range deadLettersOf(l.t, l.client, group) {
		body := d.Message.Body
		l.history.Received = append(l.history.Received, verify.Received{
			Key: keyOf(body), Group: group, CRC: crc32.Checksum(body, castagnoli), Receipt: d.Origin, Attempt: d.Attempts,
			Settled: verify.Dead, At: d.DeadSince.Add(time.Millisecond), // whole milliseconds, cut
		})
	}
}

// deadLettersOf are those of a group.
func deadLettersOf(t testing.TB, c *client.Client, group string) []client.DeadLetter {
	t.Helper()
	return process.Answer(t, "the dead letters of group "+group, func() (all []client.DeadLetter, err error) {
		for d, err := range c.Admin().DeadLetters(t.Context(), queue, group) {
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
		return all, nil
	})
}

// save keeps the history of a failure.
func (l *load) save() {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("columba-history-%d.jsonl", os.Getpid()))
	f, err := os.Create(path)
	if err != nil {
		l.t.Log(err)
		return
	}
	defer f.Close()
	if err := l.history.Write(f); err != nil {
		l.t.Log(err)
	}
	l.t.Logf("the history is in %s", path)
}
