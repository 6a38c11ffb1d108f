package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// halfCut is how long a zone is cut off in part.
const halfCut = 45 * time.Second

// TestZoneIsCutOffOneWay has three zones, and then cuts the first one off, in which the queues and the head of the CP
// queue were made; loses what the third one sends; and loses what it is sent. The other zones go on with both queues.
// After the last heal every acknowledged message comes, those of the CP queue in the order of each publisher.
func TestZoneIsCutOffOneWay(t *testing.T) {
	long(t)
	nets, zones, publishers, consumers := startZones(t, "oneway")
	names := []string{"a", "b", "c"}
	for i, x := range []struct {
		what string
		zone int
		cut  func(zone, others []int)
	}{
		{"the first zone is cut off", 0, nets.Cut},
		{"the third zone is not heard", 2, nets.Drop},
		{"the third zone hears nothing", 2, func(zone, others []int) { nets.Drop(others, zone) }},
	} {
		var others []int
		for z := range zones {
			if z != x.zone {
				others = append(others, z)
			}
		}
		x.cut([]int{x.zone}, others)
		<-time.After(halfCut / 2)
		half := time.Now()
		<-time.After(halfCut / 4)
		for _, z := range zones {
			r := z.at.Run("", "why-stuck", cpQueue, "g")
			t.Logf("zone %s: %s%s", z.name, r.Stdout, r.Stderr)
		}
		<-time.After(halfCut / 4)
		for n, z := range zones {
			for _, q := range []string{apQueue, cpQueue} {
				acked, delivered := z.own(q, half)
				t.Logf("%s: zone %s, %s: in the second half %d acked, %d of them delivered in the zone", x.what, z.name, q, acked, delivered)
				if n != x.zone && acked < 100 {
					t.Errorf("%s: zone %s: %d messages of %s were acknowledged in %s", x.what, z.name, acked, q, halfCut/2)
				}
			}
		}
		both := []*zone{zones[others[0]], zones[others[1]]}
		for _, q := range []string{apQueue, cpQueue} { // those of the last seconds may be on their way
			acked, came := delivered(both, q, half, half.Add(halfCut/2-5*time.Second))
			t.Logf("%s: of %d messages of %s that the other zones acknowledged in the second half, %d were delivered there", x.what, acked, q, came)
			if came < acked*9/10 { // a consumer that is cut off may hold some until their locks time out
				t.Errorf("%s: most messages of %s are to be delivered on the side with the majority", x.what, q)
			}
		}
		if nets.Heal() == 0 {
			t.Errorf("%s: no packet was lost", x.what)
		}
		healed, z := time.Now(), zones[x.zone]
		for _, q := range []string{apQueue, cpQueue} { // those of before may have given up, and one that begins at once may be refused
			var p *process.Command
			for n := 0; p == nil || z.since(q, healed) <= 40 && time.Since(healed) < flowsWithin; n++ {
				name := fmt.Sprintf("%s-again-%d-%d", z.name, i, n)
				p = z.publish(q, name)
				publishers, names = append(publishers, p), append(names, name)
				process.EventuallyWithin(t, flowsWithin, z.name+" publishes to "+q+", or gives up", func() bool { return z.since(q, healed) > 40 || !p.Running() })
			}
		}
		for _, z := range zones {
			z.flows(t, apQueue, healed)
			z.flows(t, cpQueue, healed)
		}
		sound(t, z.at)
		t.Logf("%s: all zones publish to both queues %s after the heal", x.what, time.Since(healed).Round(100*time.Millisecond))
	}
	healed := time.Now()
	for _, p := range publishers {
		p.Interrupt()
	}
	allCame(t, zones, names, healed, 3)
	for _, consumer := range consumers {
		consumer.Interrupt()
	}
}
