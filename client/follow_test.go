package client

import (
	"fmt"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Two hosts serve the group; when one tells that it serves it no more, the other goes on.
func TestConsumer_ReconfigureMovesOn(t *testing.T) {
	a, b := startFake(t, &fake{}), &fake{}
	startFake(t, b)
	con := consume(t, dial(t, a))
	a.add(t, 5)
	b.add(t, 5)
	eventually(t, "the first host has delivered", func() (ok bool) {
		a.state(func() { ok = len(a.mu.ready) == 0 })
		return ok
	})
	a.state(func() {
		for s := range a.mu.streams {
			s.deposed = true
			s.send(wire.TypeReconfigure, &pb.Reconfigure{Version: 2, Hosts: []*pb.HostAddress{{Id: "b", Address: b.addr}}})
		}
	})
	eventually(t, "the first host's are returned", func() (ok bool) {
		a.state(func() { ok = a.mu.returned == 5 })
		return ok
	})
	for d, err := range con.Deliveries(limited(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Receipt.Extent != b.extent {
			t.Error("the first host delivers on")
		}
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		if d.Receipt.Seq == 5 {
			break
		}
	}
	eventually(t, "the second host's are acked", func() bool { return b.ackedCount() == 5 })
}

// TestConsumer_FollowsAHostWhoseClockIsBehind: versions of routes are clocks, and only those of one host can be
// compared.
func TestConsumer_FollowsAHostWhoseClockIsBehind(t *testing.T) {
	ahead, behind, last := startFake(t, &fake{}), startFake(t, &fake{}), startFake(t, &fake{})
	con := consume(t, dial(t, ahead))
	for i, x := range []struct {
		from, to *fake
		version  uint64
	}{{ahead, behind, 1_000_000}, {behind, last, 2}, {behind, ahead, 1}} {
		name := fmt.Sprint("next", i)
		x.from.state(func() {
			for s := range x.from.mu.streams {
				s.send(wire.TypeReconfigure, &pb.Reconfigure{Version: x.version, Hosts: []*pb.HostAddress{{Id: name, Address: x.to.addr}}})
			}
		})
		if i == 2 {
			continue // older than another of its own
		}
		eventually(t, "the consumer follows", func() bool {
			con.mu.Lock()
			defer con.mu.Unlock()
			return con.mu.streams[core.HostID(name)] != nil
		})
	}
	eventually(t, "the consumer has read all", func() bool {
		con.mu.Lock()
		defer con.mu.Unlock()
		return !con.mu.hasHosts && con.mu.streams["next2"] == nil
	})
}

// TestConsumer_AtMostOnceYieldsAfterAMove moves a group that delivers at most once to another host while messages of
// the first one wait at the client: they are yielded.
func TestConsumer_AtMostOnceYieldsAfterAMove(t *testing.T) {
	a, b := startFake(t, &fake{once: true}), startFake(t, &fake{once: true})
	con := consume(t, dial(t, a))
	a.add(t, 5)
	eventually(t, "the first host has delivered", func() (ok bool) {
		a.state(func() { ok = len(a.mu.ready) == 0 })
		return ok
	})
	move := func(from *fake, version uint64) {
		from.state(func() {
			for s := range from.mu.streams {
				s.deposed = from == a
				s.send(wire.TypeReconfigure, &pb.Reconfigure{Version: version, Hosts: []*pb.HostAddress{{Id: "b", Address: b.addr}}})
			}
		})
		eventually(t, "the consumer follows", func() bool {
			con.mu.Lock()
			defer con.mu.Unlock()
			return !con.mu.hasHosts && con.mu.streams["b"] != nil
		})
	}
	move(a, 2)
	move(b, 3) // the consumer has left the first host before it followed this
	seq := core.Seq(0)
	for d, err := range con.Deliveries(limited(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if seq++; d.Receipt != (core.Receipt{Extent: a.extent, Seq: seq}) {
			t.Fatalf("got %s, want message %d of the first host", d.Receipt, seq)
		}
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		if seq == 5 {
			break
		}
	}
	if seq < 5 {
		t.Errorf("the client yielded %d of the 5 messages it held", seq)
	}
	a.state(func() {
		if a.mu.returned > 0 {
			t.Errorf("%d messages were given back, and are lost", a.mu.returned)
		}
	})
}
