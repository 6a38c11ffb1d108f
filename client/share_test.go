package client

import (
	"slices"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// waitingMessages is how many messages of these hosts wait for the application.
func (b *inbox) waitingMessages(hosts ...core.HostID) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range append(b.mu.slabs[:len(b.mu.slabs):len(b.mu.slabs)], b.mu.apart...) {
		if slices.Contains(hosts, s.stream.host.id) {
			n += len(s.deliveries) - s.next
		}
	}
	return n
}

// TestPrefetch_IsDividedAnewWhenHostsChange moves a group from one host to three, and back: a consumer holds its
// prefetch of all together, once it has worked off what it had asked for before.
func TestPrefetch_IsDividedAnewWhenHostsChange(t *testing.T) {
	const prefetch = 60
	for name, opts := range map[string][]ConsumerOption{"prefetch": nil, "limit": {Limit(100_000)}, "bytes": {PrefetchBytes(1 << 20)}} {
		t.Run(name, func(t *testing.T) {
			var hosts []*fake
			var route []*pb.HostAddress
			for _, id := range []string{"h1", "h2", "h3"} {
				f := startFake(t, &fake{})
				f.add(t, 1000)
				hosts = append(hosts, f)
				route = append(route, &pb.HostAddress{Id: id, Address: f.addr})
			}
			con := consume(t, dial(t, hosts[0]), append(opts, Prefetch(prefetch))...)
			work := func(n int) {
				for d, err := range con.Deliveries(limited(t)) {
					if err != nil {
						t.Fatal(err)
					}
					if err := d.Ack(); err != nil {
						t.Fatal(err)
					}
					if n--; n == 0 {
						return
					}
				}
			}
			all := []core.HostID{"h1", "h2", "h3"}
			holds := func(what string, least, most int) {
				t.Helper()
				eventually(t, what, func() bool { n := con.inbox.waitingMessages(all...); return least <= n && n <= most })
			}
			holds("one host fills the prefetch", prefetch, prefetch)
			if err := con.reconfigure(route); err != nil {
				t.Fatal(err)
			}
			holds("the new hosts deliver their parts", prefetch+2*prefetch/3, prefetch+2*prefetch/3)
			for range 5 {
				work(prefetch)
			}
			holds("three hosts share the prefetch", prefetch/3, prefetch)
			work(2 * prefetch)
			holds("three hosts share the prefetch", prefetch/3, prefetch)
			if err := con.reconfigure(route[:1]); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the others rest", func() bool {
				n := 0
				for _, f := range hosts[1:] {
					f.state(func() { n += f.mu.returned })
				}
				return n > 0
			})
			all = all[:1] // what the others had sent by then may arrive yet
			work(prefetch)
			holds("one host has more than a third of the prefetch", prefetch/3+1, prefetch) // up to a half may wait for the next grant
		})
	}
}
