package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

const (
	apQueue, cpQueue = "/t/ap", "/t/cp"
	apart            = 60 * time.Second // how long a zone is cut off
	// fewDuplicates of a queue are what was in flight, and what was acked since the last checkpoint, at two moves of a
	// share: 60 messages a second are published, and three consumers hold what they get.
	fewDuplicates = 600
	// refusedWithin is how long a publish without a majority takes: three seconds, one more question to a controller, and
	// the start of the process.
	refusedWithin = 5 * time.Second
)

// zone is a network namespace with a Cassandra node and a process of each role, and what its publishers and consumers
// saw.
type zone struct {
	name string
	at   *process.Server // its frontend, for command lines in the zone

	mu       sync.Mutex
	acked    map[string]map[string]time.Time // when, by queue and payload
	received map[string]map[string]int       // how often, by queue and payload
	order    []string                        // payloads of the CP queue in the order of their first delivery to the group that has one consumer
}

func newZone(name string, at *process.Server) *zone {
	z := &zone{name: name, at: at, acked: make(map[string]map[string]time.Time), received: make(map[string]map[string]int)}
	for _, q := range []string{apQueue, cpQueue} {
		z.acked[q], z.received[q] = make(map[string]time.Time), make(map[string]int)
	}
	return z
}

// publish has messages published to a queue, 20 a second, until the command is interrupted, or gives up. Their payloads
// are named and numbered.
func (z *zone) publish(queue, name string) *process.Command {
	var input strings.Builder
	payload := func(i int) string { return fmt.Sprintf("%s-%d", name, i) }
	for i := range 20_000 {
		input.WriteString(payload(i) + "\n")
	}
	return z.at.Launch(strings.NewReader(input.String()), func(line []byte) {
		var out struct {
			Line int
			OK   bool
		}
		if json.Unmarshal(line, &out) == nil && out.OK {
			z.mu.Lock()
			defer z.mu.Unlock()
			z.acked[queue][payload(out.Line-1)] = time.Now()
		}
	}, "publish", queue, "-o", "json", "--rate", "20")
}

func (z *zone) consume(queue string) *process.Command {
	return z.at.Launch(nil, func(line []byte) {
		var m struct{ Payload string }
		if json.Unmarshal(line, &m) != nil {
			return
		}
		z.mu.Lock()
		defer z.mu.Unlock()
		z.received[queue][m.Payload]++
	}, "consume", queue, "g", "-o", "json")
}

// consumeAlone has one consumer take all messages of the CP queue, in a group of its own.
func (z *zone) consumeAlone() *process.Command {
	seen := make(map[string]bool)
	return z.at.Launch(nil, func(line []byte) {
		var m struct{ Payload string }
		if json.Unmarshal(line, &m) != nil || seen[m.Payload] {
			return
		}
		seen[m.Payload] = true
		z.mu.Lock()
		defer z.mu.Unlock()
		z.order = append(z.order, m.Payload)
	}, "consume", cpQueue, "alone", "-o", "json")
}

// since counts the messages that were acked after a time.
func (z *zone) since(queue string, from time.Time) (n int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, at := range z.acked[queue] {
		if at.After(from) {
			n++
		}
	}
	return n
}

// own counts the messages that were published and acked in this zone after a time, and those of them that came back
// here.
func (z *zone) own(queue string, from time.Time) (acked, delivered int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for payload, at := range z.acked[queue] {
		if at.After(from) {
			acked++
			if z.received[queue][payload] > 0 {
				delivered++
			}
		}
	}
	return acked, delivered
}

// delivered counts the messages that were published and acked in some zones within a time, and those of them that came
// to consumers there.
func delivered(zones []*zone, queue string, from, to time.Time) (acked, came int) {
	for _, z := range zones {
		z.mu.Lock()
		for payload, at := range z.acked[queue] {
			if at.Before(from) || at.After(to) {
				continue
			}
			acked++
			for _, other := range zones {
				if other != z {
					other.mu.Lock()
				}
				got := other.received[queue][payload] > 0
				if other != z {
					other.mu.Unlock()
				}
				if got {
					came++
					break
				}
			}
		}
		z.mu.Unlock()
	}
	return acked, came
}

// startZones starts three zones with an AP queue and a CP queue, and has publishers and consumers of both in each.
func startZones(t *testing.T, keyspace string) (nets *process.Networks, zones []*zone, publishers, consumers []*process.Command) {
	t.Helper()
	nets = process.NewNetworks(t, 3)
	var places []process.Net
	var hosts []string
	for i := range 3 {
		places = append(places, nets.Net(i))
		hosts = append(hosts, nets.Net(i).Host+":9042")
	}
	nodes.In(t, places)
	url := applied(t, hosts, keyspace)
	c := process.StartCluster(t, process.Layout{
		Controllers: 3, Stores: 3, Inputs: 3, Outputs: 3,
		Place: func(i int) process.Net { return places[i%3] },
		Flags: []string{"--insecure"},
		FlagsOf: func(i int) []string {
			return []string{"--zone", string(rune('a' + i%3)), "--metadata", url + "?local=" + hosts[i%3]}
		},
	})
	c.Controller.Must("", "create", "queue", apQueue, "--replicas", "3", "--min-replicas", "1")
	c.Controller.Must("", "create", "queue", cpQueue, "--consistency", "cp", "--replicas", "3", "--min-replicas", "2")
	for i, s := range c.Controllers {
		z := newZone(string(rune('a'+i)), process.At(t, s.Addr).From(places[i].Prefix...))
		zones = append(zones, z)
	}
	for _, q := range []string{apQueue, cpQueue} {
		c.Controller.Must("", "create", "group", q, "g", "--start", "earliest")
		for _, z := range zones {
			publishers = append(publishers, z.publish(q, z.name))
			consumers = append(consumers, z.consume(q))
		}
	}
	c.Controller.Must("", "create", "group", cpQueue, "alone", "--start", "earliest")
	consumers = append(consumers, zones[1].consumeAlone()) // that zone is never cut off from both others
	for _, z := range zones {
		z.flows(t, apQueue, time.Time{})
		z.flows(t, cpQueue, time.Time{})
	}
	return nets, zones, publishers, consumers
}

// flows waits until messages that the zone publishes are acknowledged.
func (z *zone) flows(t *testing.T, queue string, from time.Time) {
	t.Helper()
	process.EventuallyWithin(t, flowsWithin, z.name+" publishes to "+queue, func() bool { return z.since(queue, from) > 40 })
}

// flowsWithin is how soon after a heal all zones publish again.
const flowsWithin = time.Minute

// TestZoneIsCutOff has three zones, each with a Cassandra node and a process of each role, and cuts one off from the
// others. An AP queue takes and delivers messages on both sides, a CP queue on the side of the majority. After the heal
// every acknowledged message comes: what was sent to consumers that were cut off when its lock ends, 60 s after it was
// sent.
func TestZoneIsCutOff(t *testing.T) {
	long(t)
	nets, zones, publishers, consumers := startZones(t, "zones")

	cut := time.Now()
	nets.Cut([]int{0, 1}, []int{2})
	<-time.After(apart / 2)
	half := time.Now()
	says(t, zones[2].at, "no majority: cut off from ", "list", "hosts")
	says(t, zones[2].at, "cut off from ", "why-stuck", apQueue, "g")
	if r := zones[0].at.Run("", "list", "hosts"); r.Code != 0 || strings.Contains(r.Stdout, "no majority") {
		t.Errorf("on the side of the majority list hosts says: %s%s", r.Stdout, r.Stderr)
	}
	<-time.After(apart / 2)
	for _, z := range zones {
		for _, q := range []string{apQueue, cpQueue} {
			acked, delivered := z.own(q, half)
			t.Logf("zone %s, %s: %d acked since the cut; in its second half %d acked, %d of them delivered in the zone", z.name, q, z.since(q, cut), acked, delivered)
			if minority := z == zones[2]; minority && q == cpQueue {
				if acked > 0 {
					t.Errorf("the CP queue acknowledged %d messages on the side without a majority", acked)
				}
			} else if acked < 100 {
				t.Errorf("zone %s: %d messages of %s were acknowledged in %s of the cut", z.name, acked, q, apart/2)
			}
		}
	}
	for _, q := range []string{apQueue, cpQueue} { // those of the last seconds may be on their way
		acked, came := delivered(zones[:2], q, half, half.Add(apart/2-5*time.Second))
		t.Logf("of %d messages of %s that zones a and b acknowledged in the second half of the cut, %d were delivered there", acked, q, came)
		if came < acked*9/10 { // a consumer that is cut off may hold some until their locks time out
			t.Errorf("%s: most messages are to be delivered on the side with the majority", q)
		}
	}
	refused := time.Now()
	if r := zones[2].at.Run("one\n", "publish", cpQueue, "--timeout", "20s"); r.Code != core.ExitUnavailable || !strings.Contains(r.Stderr, "(no_majority)") || time.Since(refused) > refusedWithin {
		t.Errorf("a publish to the CP queue without a majority: exit code %d after %s: %s", r.Code, time.Since(refused), r.Stderr)
	} else {
		t.Logf("a publish to the CP queue without a majority ends after %s: %s", time.Since(refused).Round(100*time.Millisecond), r.Stderr)
	}

	if nets.Heal() == 0 {
		t.Error("no packet was lost")
	}
	healed := time.Now()
	publishers = append(publishers, zones[2].publish(cpQueue, "c-again")) // the first one has given up
	for _, z := range zones {
		z.flows(t, apQueue, healed)
		z.flows(t, cpQueue, healed)
	}
	sound(t, zones[2].at)
	t.Logf("all zones publish to both queues %s after the heal", time.Since(healed).Round(100*time.Millisecond))
	for _, p := range publishers {
		p.Interrupt()
	}
	allCame(t, zones, []string{"a", "b", "c", "c-again"}, healed, 1)
	for _, consumer := range consumers {
		consumer.Interrupt()
	}
}

// allCame waits until every acknowledged message has come, those of the CP queue in the order of each publisher.
func allCame(t *testing.T, zones []*zone, publishers []string, healed time.Time, cuts int) {
	t.Helper()
	for _, q := range []string{apQueue, cpQueue} {
		var missing []string
		process.EventuallyOr(t, 7*time.Minute, func() bool { missing = undelivered(zones, q); return len(missing) == 0 }, func() string {
			return fmt.Sprintf("%d acknowledged messages of %s do not come, such as %s", len(missing), q, missing[0])
		})
		again := duplicates(zones, q)
		t.Logf("%s: every acknowledged message has come %s after the heal; %d duplicates", q, time.Since(healed).Round(100*time.Millisecond), again)
		if most := cuts * fewDuplicates; again > most {
			t.Errorf("%s: %d duplicates, want at most %d", q, again, most)
		}
	}
	process.Eventually(t, "the consumer that is alone has all of them", func() bool {
		got := make(map[string]bool)
		for _, payload := range zones[1].ordered() {
			got[payload] = true
		}
		for _, z := range zones {
			z.mu.Lock()
			for payload := range z.acked[cpQueue] {
				if !got[payload] {
					z.mu.Unlock()
					return false
				}
			}
			z.mu.Unlock()
		}
		return true
	})
	for _, name := range publishers {
		if at, ok := outOfOrder(zones[1].ordered(), name); !ok {
			t.Errorf("the CP queue delivered the messages of publisher %s out of order: %s", name, at)
		}
	}
}

// says runs a command, whose output or error has a text.
func says(t *testing.T, at *process.Server, want string, line ...string) {
	t.Helper()
	began := time.Now()
	r := at.Run("", line...)
	t.Logf("columba %s: exit code %d after %s: %.600s%.300s", strings.Join(line, " "), r.Code, time.Since(began).Round(100*time.Millisecond), r.Stdout, r.Stderr)
	if !strings.Contains(r.Stdout+r.Stderr, want) {
		t.Errorf("columba %s does not say %q", strings.Join(line, " "), want)
	}
}

// sound waits until each controller in the list of hosts has a majority of the metadata.
func sound(t *testing.T, at *process.Server) {
	t.Helper()
	process.Eventually(t, "all controllers have a majority", func() bool {
		r := at.Run("", "list", "hosts")
		return r.Code == 0 && !strings.Contains(r.Stdout, "no majority")
	})
}

func (z *zone) ordered() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.order)
}

// undelivered are the messages of a queue that were acknowledged and that no consumer has.
func undelivered(zones []*zone, queue string) (out []string) {
	got := make(map[string]bool)
	for _, z := range zones {
		z.mu.Lock()
		for payload := range z.received[queue] {
			got[payload] = true
		}
		z.mu.Unlock()
	}
	for _, z := range zones {
		z.mu.Lock()
		for payload := range z.acked[queue] {
			if !got[payload] {
				out = append(out, payload)
			}
		}
		z.mu.Unlock()
	}
	slices.Sort(out)
	return out
}

// duplicates counts the deliveries of a queue beyond the first of each message.
func duplicates(zones []*zone, queue string) (n int) {
	seen := make(map[string]bool)
	for _, z := range zones {
		z.mu.Lock()
		for payload, times := range z.received[queue] {
			n += times
			if !seen[payload] {
				seen[payload] = true
				n--
			}
		}
		z.mu.Unlock()
	}
	return n
}

// outOfOrder looks for a message of a publisher that comes after a later one.
func outOfOrder(order []string, publisher string) (at string, ok bool) {
	last := -1
	for _, payload := range order {
		number, found := strings.CutPrefix(payload, publisher+"-")
		n, err := strconv.Atoi(number)
		if !found || err != nil {
			continue // of another publisher
		}
		if n < last {
			return fmt.Sprintf("%s after %s-%d", payload, publisher, last), false
		}
		last = n
	}
	return "", true
}
