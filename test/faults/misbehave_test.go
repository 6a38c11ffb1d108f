package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// enough deliveries to a kind of consumer show something.
const enough = 3

// misbehaved is how long locks of the group of misbehaving consumers last.
const misbehaved = 2 * time.Second

// TestConsumersMisbehave has consumers of one group be killed, stand still, never acknowledge, acknowledge twice, too
// late and with bad tokens, and one that behaves: the group drains to zero, and so does its calm neighbour. In the long
// run an output host is killed now and then.
func TestConsumersMisbehave(t *testing.T) {
	lasting, server, c := 6*time.Second, (*process.Server)(nil), (*process.Cluster)(nil)
	if os.Getenv(longEnv) == "" {
		server = process.StartServer(t)
	} else {
		lasting, c = time.Duration(scaled(t, 90))*time.Second, process.StartCluster(t, process.Layout{})
		server = c.Controller
	}
	server.Must("", "create", "queue", queue)
	l := newLoadOf(t, server, 300, []string{"work", "calm"}, "--lock-timeout", misbehaved.String(), "--max-deliveries", "unlimited")
	l.start(1, 1)
	// No consumer has seen the messages that a killed consumer had.
	l.noted(verify.Crash{What: "consumers are killed from now on", From: time.Now(), To: time.Now()})
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	more, cancel := context.WithTimeout(t.Context(), lasting+process.Patience)
	defer cancel()
	m := &misbehaving{load: l, counts: make(map[string]int)}
	var all sync.WaitGroup
	for name, round := range map[string]func(context.Context, string){
		"killed": m.killed, "half-open": m.halfOpen, "never": m.never, "twice": m.twice, "late": m.late, "wrong": m.wrong,
	} {
		all.Go(func() {
			for ctx.Err() == nil {
				round(ctx, name)
			}
			for more.Err() == nil && m.deliveries(name) < enough { // a busy machine may have seen few by then
				round(more, name)
			}
		})
	}
	for i := 0; c != nil && ctx.Err() == nil; i++ {
		select {
		case <-ctx.Done():
		case <-time.After(8 * time.Second):
			from, s := time.Now(), c.Outputs[i%2]
			s.Restart()
			c.AwaitHosts()
			l.down(s.Name, from)
		}
	}
	all.Wait()
	l.finish()
	for name, n := range m.counts {
		if n < enough {
			t.Errorf("%s: %d deliveries show little", name, n)
		}
	}
	if len(m.counts) != 6 {
		t.Errorf("deliveries by kind of consumer: %v, want six kinds", m.counts)
	}
	l.row("consumers that are killed, half-open, never ack, ack twice, late, with bad tokens", fmt.Sprintf("deliveries to them: %v", m.counts))
}

// misbehaving are the consumers of the group "work" that do not behave. Each method is one round of one of them.
type misbehaving struct {
	*load
	mu     sync.Mutex
	counts map[string]int // deliveries, by kind
}

// seen is a delivery and when it came.
type seen struct {
	*client.Delivery
	at time.Time
}

func tokensOf(ds []seen) (tokens []string) {
	for _, d := range ds {
		tokens = append(tokens, d.Token)
	}
	return tokens
}

func (m *misbehaving) note(name string, d seen, how verify.Settled) {
	m.saw("work", name, d.Delivery, how, d.at)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[name]++
}

func (m *misbehaving) deliveries(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[name]
}

// comes waits until there is more than before, or ctx ends.
func (m *misbehaving) comes(ctx context.Context, name string, before int) {
	for ctx.Err() == nil && m.deliveries(name) <= before {
		passes(ctx, 20*time.Millisecond)
	}
}

func (m *misbehaving) command(name string, how verify.Settled, flags ...string) *process.Command {
	return m.commandOf("work", how, func() {
		m.mu.Lock()
		m.counts[name]++
		m.mu.Unlock()
	}, flags...)
}

// commandOf runs `columba consume` of a group, whose deliveries are written down as how.
func (l *load) commandOf(group string, how verify.Settled, seen func(), flags ...string) *process.Command {
	return l.server.Launch(nil, func(line []byte) {
		var x struct {
			Payload, Extent string
			Seq             core.Seq
			Attempt         int
		}
		err := json.Unmarshal(line, &x)
		at, rerr := client.ParseReceipt(x.Extent + ":" + strconv.FormatUint(uint64(x.Seq), 10))
		if err != nil || rerr != nil {
			l.t.Errorf("consume said %q: %v %v", line, err, rerr)
			return
		}
		seen()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.history.Received = append(l.history.Received, verify.Received{
			Key: keyOf([]byte(x.Payload)), Group: group, Consumer: "command", CRC: crc32.Checksum([]byte(x.Payload), castagnoli),
			Receipt: at, Attempt: x.Attempt, Settled: how, At: time.Now(),
		})
	}, append([]string{"consume", queue, group, "-o", "json"}, flags...)...)
}

func (m *misbehaving) killed(ctx context.Context, name string) {
	before := m.deliveries(name)
	c := m.command(name, verify.Dropped, "--ack", "none", "--count", "20")
	m.comes(ctx, name, before)
	passes(ctx, time.Duration(m.random(600))*time.Millisecond)
	c.Kill()
}

// halfOpen stands still with its connection open, for longer than its locks last, and goes on.
func (m *misbehaving) halfOpen(ctx context.Context, name string) {
	before := m.deliveries(name)
	c := m.command(name, verify.Stale, "--prefetch", "20")
	m.comes(ctx, name, before)
	passes(ctx, 300*time.Millisecond)
	c.Pause()
	passes(ctx, 2*misbehaved)
	c.Continue()
	passes(ctx, 300*time.Millisecond)
	c.Kill()
}

func (m *misbehaving) never(ctx context.Context, name string) {
	for _, d := range m.some(ctx, 20) {
		m.note(name, d, verify.Dropped)
	}
	passes(ctx, misbehaved/2)
}

func (m *misbehaving) twice(ctx context.Context, name string) {
	ds := m.some(ctx, 10)
	if len(ds) == 0 {
		return
	}
	first, err := m.client.Ack(m.t.Context(), tokensOf(ds)...)
	m.settled(name, ds, first, err)
	_, _ = m.client.Ack(m.t.Context(), tokensOf(ds)...) // whatever it says
}

func (m *misbehaving) late(ctx context.Context, name string) {
	ds := m.some(ctx, 5)
	passes(ctx, misbehaved+200*time.Millisecond)
	if len(ds) == 0 {
		return
	}
	refused, err := m.client.Ack(m.t.Context(), tokensOf(ds)...)
	m.settled(name, ds, refused, err)
}

// wrong acknowledges a delivery together with tokens that are damaged: they are refused, and it is done.
func (m *misbehaving) wrong(ctx context.Context, name string) {
	ds := m.some(ctx, 3)
	if len(ds) < 3 {
		for _, d := range ds {
			m.note(name, d, verify.Dropped)
		}
		return
	}
	damaged := []byte(ds[1].Token)
	damaged[m.random(len(damaged)-1)] ^= 1 // of the last character some bits mean nothing
	bad := []string{string(damaged), "garbage", ds[2].Token[:len(ds[2].Token)/2]}
	refused, err := m.client.Ack(m.t.Context(), append(bad, ds[0].Token)...)
	if err == nil {
		wrong := 0
		for _, f := range refused {
			if f.Token != ds[0].Token {
				wrong++
			}
		}
		if wrong != len(bad) {
			m.t.Errorf("of %d bad tokens %d were refused: %v", len(bad), wrong, refused)
		}
	}
	m.settled(name, ds[:1], refused, err)
	for _, d := range ds[1:] {
		m.note(name, d, verify.Dropped)
	}
}

// settled writes down what became of deliveries that were acknowledged by their tokens. A call without an answer may
// have counted.
func (m *misbehaving) settled(name string, ds []seen, refused []client.TokenError, err error) {
	bad := make(map[string]bool)
	for _, f := range refused {
		bad[f.Token] = true
	}
	for _, d := range ds {
		how := verify.Late // its lock may have ended meanwhile
		if err == nil && bad[d.Token] {
			how = verify.Dropped
		}
		m.note(name, d, how)
	}
}

// some takes up to n deliveries with tokens, and closes its consumer.
func (m *misbehaving) some(ctx context.Context, n int) (out []seen) {
	con, err := m.client.Consumer(ctx, queue, "work", client.Prefetch(n), client.WithTokens())
	if err != nil {
		passes(ctx, 50*time.Millisecond) // its host is on its way
		return nil
	}
	short, cancel := context.WithTimeout(ctx, misbehaved/2)
	defer cancel()
	for d, err := range con.Deliveries(short) {
		if err != nil {
			break
		}
		if out = append(out, seen{d, time.Now()}); len(out) == n {
			break
		}
	}
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = con.Close(end)
	return out
}

// passes lets time pass, or ctx end.
func passes(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
