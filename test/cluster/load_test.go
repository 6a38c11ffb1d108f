package cluster

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/tools/verify"
)

// load is what publishers and consumers do to a cluster, written down. Safe for concurrent use.
type load struct {
	queues []core.QueueSpec
	groups []core.GroupSpec
	habits map[string]*habit                   // of groups, by name; none of the plain ones
	chores []func(t *trial, random *rand.Rand) // that go on beside the faults and end by themselves in the calm
	pace   time.Duration                       // that consumers take for a message, on average
	later  time.Duration                       // for which some messages are published ahead, at most; 0: none
	perish bool                                // some messages expire

	mu struct {
		sync.Mutex
		history       verify.History
		taken         map[string][]*taken      // by groups that have a habit
		due           map[verify.Key]time.Time // what is published for later, by the clock of its publisher
		postponed     []verify.Key             // the same, in their order
		recalled      map[verify.Key]*recall   // what somebody began to cancel
		expires       map[verify.Key]time.Time
		ahead, behind time.Duration // that clocks of hosts were off by, at most
		sought        []sought      // seeks that were answered
		off           []off
		shut          []shut
		purge         *purge
		births        []birth                     // of the group that is made again
		began         map[verify.Key]time.Time    // when it was given to its publisher
		receipts      map[verify.Key]core.Receipt // of what was acknowledged
		got           map[string]map[verify.Key]bool
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newLoad(s *schedule) *load {
	l := &load{queues: []core.QueueSpec{{Path: "/s/three", Replicas: 3, MinReplicas: 2}, {Path: "/s/any", Replicas: 3, MinReplicas: s.copies()}}}
	if s.single {
		l.queues = append(l.queues, core.QueueSpec{Path: "/s/one", Replicas: 1, MinReplicas: 1})
	}
	l.mu.receipts = make(map[verify.Key]core.Receipt)
	l.mu.got = make(map[string]map[verify.Key]bool)
	for i, q := range l.queues {
		l.groups = append(l.groups, group(q.Path, "calm"))
		if i == 0 {
			l.groups = append(l.groups, group(q.Path, "work"))
		}
	}
	for _, g := range l.groups {
		l.mu.got[g.Queue+" "+g.Name] = make(map[verify.Key]bool)
	}
	return l
}

func group(queue, name string) core.GroupSpec {
	return core.GroupSpec{Queue: queue, Name: name, Start: core.Start{Mode: core.StartEarliest}, LockTimeout: 3 * time.Second, MaxDeliveries: 50}
}

// consumers is how many a group has.
func (l *load) consumers(group string) int {
	if group == "calm" {
		return 1
	}
	return 2
}

// publish publishes until stop is closed, and waits for the last outcomes.
func (t *trial) publish(cl *client.Client, queue, name string, random *rand.Rand, stop <-chan struct{}) {
	var p *client.Publisher
	for p == nil {
		var err error
		if p, err = cl.Publisher(t.t.Context(), queue); err != nil {
			t.say("publisher %s: %v", name, err)
			if closed(stop) {
				return
			}
			sleep(time.Second)
		}
	}
	for seq := uint64(1); !closed(stop); seq++ {
		key := verify.Key{Queue: queue, Publisher: name, Seq: seq}
		body := fmt.Appendf(nil, "%s/%d/%s", name, seq, strings.Repeat("x", random.IntN(100)))
		crc := crc32.Checksum(body, castagnoli)
		m := client.Message{Body: body}
		t.load.begin(key)
		if t.load.later > 0 {
			t.postpone(&m, key, random)
		}
		if t.load.perish {
			t.perish(&m, key, random)
		}
		err := p.PublishAsync(t.t.Context(), m, func(r client.Receipt, err error) { t.outcome(key, crc, r, err) })
		if err != nil {
			t.t.Errorf("publisher %s: %v", name, err)
			break
		}
		if random.IntN(4) > 0 { // else a burst
			select {
			case <-stop:
			case <-time.After(time.Duration(random.ExpFloat64() * float64(400*time.Millisecond))):
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.t.Errorf("close publisher %s: %v", name, err)
	}
}

func (t *trial) outcome(key verify.Key, crc uint32, r client.Receipt, err error) {
	out := verify.Acked
	switch {
	case err != nil && core.CodeOf(err).Class() == core.ClassUnknown:
		out = verify.Unknown
	case err != nil:
		out = verify.Failed
	}
	if err != nil && core.CodeOf(err) != core.CodeDisabled {
		t.say("%s: %v", key, err)
	}
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	t.load.mu.history.Published = append(t.load.mu.history.Published, verify.Published{Key: key, CRC: crc, Outcome: out, At: time.Now()})
	if err == nil {
		t.load.mu.receipts[key] = r.Receipt
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// consume consumes until stop is closed, by one consumer after another; many of them crash.
func (t *trial) consume(g core.GroupSpec, name string, random *rand.Rand, stop <-chan struct{}) {
	for life := 0; !closed(stop); life++ {
		p := t.net.attach("client")
		cl, err := t.dial(p)
		if err != nil {
			t.say("consumer %s: %v", name, err)
			sleep(time.Second)
			continue
		}
		ctx, cancel := context.WithCancel(t.t.Context())
		lives := time.Duration(1+random.IntN(15)) * time.Second
		t.wg.Go(func() {
			defer cancel()
			select {
			case <-stop:
			case <-t.calm:
				select {
				case <-stop:
				case <-ctx.Done():
				}
			case <-time.After(lives):
			}
		})
		t.life(ctx, cl, g, fmt.Sprintf("%s-%d", name, life), random)
		cancel()
		if g.Delivery == core.AtMostOnce && !closed(stop) { // what it gave back unseen when it closed is lost
			t.crashed("consumer "+name, time.Now(), time.Now())
		}
		if !closed(t.calm) && random.IntN(2) == 0 {
			p.kill()
			t.crashed("consumer "+name, time.Now(), time.Now())
		}
		if err := cl.Close(); err != nil {
			t.t.Errorf("close client of %s: %v", name, err)
		}
		p.kill()
	}
}

func (t *trial) life(ctx context.Context, cl *client.Client, g core.GroupSpec, name string, random *rand.Rand) {
	prefetch := 100
	if t.load.pace > 0 { // so that no lock runs out because its consumer is slow
		prefetch = 4
	}
	options := []client.ConsumerOption{client.Prefetch(prefetch), client.OnRefused(func(r client.Refusal) {
		if core.CodeOf(r.Err) != core.CodeStale {
			t.say("%s: settlement of %s refused: %v", name, r.Receipt, r.Err)
		}
	})}
	h := t.load.habits[g.Name]
	if h != nil && h.jumps {
		options = append(options, client.WithTokens())
	}
	con, err := cl.Consumer(ctx, g.Queue, g.Name, options...)
	if err != nil {
		if ctx.Err() == nil {
			t.say("consumer %s: %v", name, err)
			sleep(time.Second)
		}
		return
	}
	for d, err := range con.Deliveries(ctx) {
		if c := core.CodeOf(err); h != nil && (c == core.CodeDisabled || c == core.CodeNotFound && h.dies) {
			break
		}
		if err != nil {
			t.t.Errorf("consumer %s: %v", name, err)
			break
		}
		t.take(g, name, d, random)
	}
	switch {
	case closed(t.calm):
	case t.load.pace == 0, random.IntN(2) == 0: // its client ends it: what it was sent or settled last may be on the way
		t.crashed("consumer "+name, time.Now(), time.Now())
		return
	}
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := con.Close(end); err != nil {
		t.say("close consumer %s: %v", name, err)
	}
}

// take writes a delivery down and settles it.
func (t *trial) take(g core.GroupSpec, name string, d *client.Delivery, random *rand.Rand) {
	if h := t.load.habits[g.Name]; h != nil {
		t.takeBy(h, g, name, d, random)
		return
	}
	r := verify.Received{
		Key: keyOf(g.Queue, d.Body), Group: g.Name, Consumer: name, CRC: crc32.Checksum(d.Body, castagnoli), Receipt: d.Receipt, Attempt: d.Attempt, At: time.Now(),
	}
	var err error
	switch k := random.IntN(100); {
	case g.Name == "work" && k == 0:
		r.Settled, err = verify.Back, d.Reject("no")
	case g.Name == "work" && k == 1:
		r.Settled = verify.Dropped
	case g.Name == "work" && k < 8:
		r.Settled, err = verify.Back, d.Nack(client.After(time.Duration(random.IntN(1000))*time.Millisecond))
	default:
		r.Settled, err = verify.Done, d.Ack()
	}
	if err != nil {
		r.Settled = verify.Dropped
	}
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	t.load.mu.history.Received = append(t.load.mu.history.Received, r)
	t.load.mu.got[g.Queue+" "+g.Name][r.Key] = true
}

// keyOf reads what publish wrote; its seq is 0 when it did not.
func keyOf(queue string, body []byte) verify.Key {
	parts := bytes.SplitN(body, []byte("/"), 3)
	if len(parts) != 3 {
		return verify.Key{Queue: queue}
	}
	seq, _ := strconv.ParseUint(string(parts[1]), 10, 64)
	return verify.Key{Queue: queue, Publisher: string(parts[0]), Seq: seq}
}

// missing is how many acknowledged messages some group has not got.
func (l *load) missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, g := range l.groups {
		if l.habits[g.Name].apart() { // it need not get all
			continue
		}
		got := l.mu.got[g.Queue+" "+g.Name]
		for _, p := range l.mu.history.Published {
			if p.Queue == g.Queue && p.Outcome == verify.Acked && !got[p.Key] && !l.excused(g, p.Key) && !l.expired(p.Key) {
				n++
			}
		}
	}
	return n
}
