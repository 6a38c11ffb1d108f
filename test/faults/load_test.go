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
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// load is publishers and consumers that write down what they see.
type load struct {
	*run
	client *client.Client
	random func(n int) int // safe for concurrent use
}

// TestRandomKillsUnderLoad kills the server at random moments while publishers publish and consumers ack, nack, reject and forget.
// COLUMBA_FAULTS=10m makes it go on for that long, with a server under the race detector; COLUMBA_FAULTS_SEED repeats its choices.
func TestRandomKillsUnderLoad(t *testing.T) {
	lasting, program := 8*time.Second, process.Program
	if s := os.Getenv("COLUMBA_FAULTS"); s != "" {
		var err error
		if lasting, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(t.TempDir(), "columba-race")
		if err := process.Build(program, "-race"); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("COLUMBA_FAULTS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("COLUMBA_FAULTS_SEED=%d", seed)
	l := newLoad(t, process.StartProgram(t, program), seed)

	publishing, stopPublishing := context.WithTimeout(t.Context(), lasting)
	defer stopPublishing()
	consuming, stopConsuming := context.WithCancel(t.Context())
	var publishers, consumers sync.WaitGroup
	defer consumers.Wait()
	defer stopConsuming()
	for i := range 3 {
		publishers.Go(func() { l.publisher(publishing, "p"+strconv.Itoa(i)) })
	}
	for _, g := range l.groups {
		for i := range 2 {
			consumers.Go(func() { l.consumer(consuming, g, g+"-"+strconv.Itoa(i)) })
		}
	}
	for publishing.Err() == nil {
		select {
		case <-time.After(time.Duration(300+l.random(2500)) * time.Millisecond):
			l.crash()
		case <-publishing.Done():
		}
	}
	publishers.Wait()
	for _, g := range l.groups {
		process.Eventually(t, "nothing is left for "+g, func() bool { undone, _ := l.undone(g); return undone == 0 })
	}
	stopConsuming()
	consumers.Wait()
	for _, g := range l.groups {
		l.bury(g)
	}
	l.check()
	if strings.Contains(l.server.Log(), "DATA RACE") {
		t.Error("the race detector found something in the server")
	}
	if t.Failed() {
		l.save()
	}
}

func newLoad(t *testing.T, server *process.Server, seed uint64) *load {
	t.Helper()
	l := &load{run: &run{t: t, server: server, groups: []string{"work", "calm"}, got: map[string]map[uint64]bool{}}}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 0))
	l.random = func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	server.Must("", "create", "queue", queue)
	for _, g := range l.groups {
		server.Must("", "create", "group", queue, g, "--start", "earliest", "--lock-timeout", "3s", "--max-deliveries", "20")
	}
	l.client = server.Client()
	return l
}

// publisher publishes until ctx ends and waits for all outcomes.
func (l *load) publisher(ctx context.Context, name string) {
	p, err := l.client.Publisher(l.t.Context(), queue)
	if err != nil {
		l.t.Error(err)
		return
	}
	for seq := uint64(1); ctx.Err() == nil; seq++ {
		body := fmt.Appendf(nil, "%s/%d/%s", name, seq, strings.Repeat("x", l.random(2000)))
		crc := crc32.Checksum(body, castagnoli)
		err := p.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) {
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
		})
		if err != nil && ctx.Err() == nil {
			l.t.Errorf("publisher %s: %v", name, err)
			break
		}
		if seq%20 == 0 {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	end, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	if err := p.Close(end); err != nil {
		l.t.Errorf("close publisher %s: %v", name, err)
	}
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
			continue
		}
		some, cancel := context.WithTimeout(ctx, time.Duration(500+l.random(3000))*time.Millisecond)
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

// take writes a delivery down and settles it. The calm group acks everything.
func (l *load) take(group, name string, d *client.Delivery) {
	r := verify.Received{
		Group: group, Consumer: name, CRC: crc32.Checksum(d.Body, castagnoli), Receipt: d.Receipt, Attempt: d.Attempt, At: time.Now(),
	}
	if r.Key = keyOf(d.Body); r.Seq == 0 {
		l.t.Errorf("consumer %s got %.50q", name, d.Body)
	}
	var err error
	switch n := l.random(200); {
	case group == "work" && n == 0:
		r.Settled, err = verify.Back, d.Reject("no")
	case group == "work" && n == 1:
		r.Settled = verify.Dropped
	case group == "work" && n < 10:
		r.Settled, err = verify.Back, d.Nack(client.After(time.Duration(l.random(500))*time.Millisecond), client.Reason("later"))
	default:
		r.Settled, err = verify.Done, d.Ack()
	}
	if err != nil {
		r.Settled = verify.Dropped
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
	for d, err := range l.client.Admin().DeadLetters(l.t.Context(), queue, group) {
		if err != nil {
			l.t.Fatal(err)
		}
		body := d.Message.Body
		l.history.Received = append(l.history.Received, verify.Received{
			Key: keyOf(body), Group: group, CRC: crc32.Checksum(body, castagnoli), Receipt: d.Origin, Attempt: d.Attempts,
			Settled: verify.Dead, At: d.DeadSince.Add(time.Millisecond), // whole milliseconds, cut
		})
	}
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
