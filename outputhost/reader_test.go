package outputhost

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// TestReader_WithoutConsumers: what an earlier owner left under way is read, and nothing after it.
func TestReader_WithoutConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		record, a := b.group()
		e, err := convert.Extent(a.Extent)
		if err != nil {
			t.Fatal(err)
		}
		rules := dispatch.NewGroup(record.Spec)
		old := rules.AddShare(e.ID, dispatch.State{}, time.Now())
		r := dispatch.Records{Base: 1, Offsets: []uint32{0, 1, 2, 3, 4}, Bytes: make([]byte, 4)}
		if err := old.Offer(r, time.Now()); err != nil {
			t.Fatal(err)
		}
		rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
		rules.Take(1, dispatch.Credit{Messages: 2, Bytes: 100}, time.Now(), nil)
		blob, _ := old.Checkpoint(nil, true, time.Now())
		key := metadata.CheckpointKey(record.ID, e.ID, 0, b.deps.Members.Self().Run)
		if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, blob, b.deps.Now(), 0, metadata.One); err != nil {
			t.Fatal(err)
		}
		if err := b.give(1, a); err != nil {
			t.Fatal(err)
		}
		g := b.groupList()[0]
		g.mu.Lock()
		s := g.mu.shares[e.ID]
		reading := func() (readers int, actions []func()) {
			g.takeChangedLocked()
			g.touchLocked(s)
			actions = g.readLocked()
			if s.reader != nil {
				readers++
			}
			return readers, actions
		}
		if n, _ := reading(); n != 1 {
			t.Errorf("%d readers of a share with two messages under way, want one", n)
		}
		if err := s.rules.Offer(r, b.deps.Now()); err != nil {
			t.Fatal(err)
		}
		s.reader = &reader{g: g, s: s} // one that was opened; there is no store to open it at
		_, actions := reading()
		g.mu.Unlock()
		for _, act := range actions {
			act()
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if n, _ := reading(); n != 0 {
			t.Error("a group without consumers reads on when what was under way was read")
		}
		if d := s.rules.Depth(); d.InFlight != 2 {
			t.Errorf("%d in flight, want the two that were", d.InFlight)
		}
	})
}

// stores makes these ids store hosts beside the output host.
func (b *harness) stores(zones map[core.HostID]string) {
	b.t.Helper()
	hosts := []membership.Host{b.deps.Members.Self()}
	for id, zone := range zones {
		hosts = append(hosts, membership.Host{ID: id, Roles: []string{"storehost"}, Address: string(id) + ":1", Zone: zone})
	}
	if err := b.deps.Members.(*static.Monitor).Set(hosts); err != nil {
		b.t.Fatal(err)
	}
}

// TestReader_PausesAfterARound counts how failures are spaced.
func TestReader_PausesAfterARound(t *testing.T) {
	b := newHarness(t)
	b.stores(map[core.HostID]string{"a": "", "b": "", "c": ""})
	e := core.Extent{ID: core.ExtentID{ID: core.ID{7}}, Replicas: []core.HostID{"a", "b", "c"}}
	g := &group{h: b.Host}
	s := &share{group: g, extent: e}
	now := time.Unix(1000, 0)
	var asked []core.HostID
	for i := range 9 {
		from := s.sourcesLocked(now)
		r := &reader{g: g, s: s, store: from[0].ID}
		asked = append(asked, r.store)
		pause := r.failed(core.Errorf(core.CodeIncomplete, "short"), now)
		if (pause > 0) != (i%3 == 2) {
			t.Errorf("failure %d: pause %s; want one after each round of three", i+1, pause)
		}
		now = now.Add(time.Millisecond + pause)
	}
	for i := range 6 {
		if asked[i] != asked[i+3] {
			t.Fatalf("asked %v, want all in turn", asked)
		}
	}
}

// TestGroup_LooksForHoldersAndEnd reads a seal row that repair has changed.
func TestGroup_LooksForHoldersAndEnd(t *testing.T) {
	b := newHarness(t)
	g, s := b.given()
	e := s.extent
	if err := g.look(t.Context(), s); err != nil || s.end {
		t.Fatalf("not sealed: %v, end %v", err, s.end)
	}
	b.write(metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 9, Holders: []core.HostID{"elsewhere"}})
	if err := g.look(t.Context(), s); err != nil || !s.end || s.l != 9 || !slices.Equal(s.holders, []core.HostID{"elsewhere"}) {
		t.Errorf("%v, end %v at %d, held by %v", err, s.end, s.l, s.holders)
	}
	r := &reader{g: g, s: s}
	if err := r.position(true, 8); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("a store with another end: %v, want %s", err, core.CodeCorrupt)
	}
	if err := r.position(true, 9); err != nil {
		t.Error(err)
	}
}

// TestReader_RetiredExtentIsNotReadAgain: its stores say that they have no such extent, and its seal row says why.
func TestReader_RetiredExtentIsNotReadAgain(t *testing.T) {
	b := newHarness(t)
	b.stores(map[core.HostID]string{"store": ""})
	_, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	e, err := convert.Extent(a.Extent)
	if err != nil {
		t.Fatal(err)
	}
	reads := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		s := g.mu.shares[e.ID]
		s.reader = nil
		g.joinPullLocked(make(chan struct{}, 1), 1) // somebody wants messages
		g.readLocked()
		wants := s.reader != nil
		s.reader = nil
		return wants
	}
	if !reads() {
		t.Fatal("the share is not read while its extent is there")
	}
	b.write(metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentRetired, L: 9, Holders: []core.HostID{"store"}})
	r := &reader{g: g, s: g.mu.shares[e.ID], store: "store"}
	r.failed(core.Errorf(core.CodeNotFound, "this store has no extent %s", e.ID), b.deps.Now())
	if _, _, err := r.choose(t.Context()); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("chosen: %v, want %s", err, core.CodeNotFound)
	}
	if reads() {
		t.Error("it is read again")
	}
	if err := b.give(2); err != nil {
		t.Fatal(err)
	}
	if n := b.shareCount(); n != 0 {
		t.Errorf("%d shares after a list without it", n)
	}
}

// TestReader_ReadsWhatWasRestored resumes a share of which only messages are left that an earlier owner handed out:
// their bytes are still to be read, also when the end of the extent is known before anything was.
func TestReader_ReadsWhatWasRestored(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 10)
	s.rules.Ack(1, 8, 1, b.deps.Now(), nil)
	state := s.rules.State(b.deps.Now())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.rules.RemoveShare(s.rules)
	s.rules = g.mu.rules.AddShare(s.extent.ID, state, b.deps.Now())
	s.reader = &reader{g: g, s: s, told: true}
	s.last = 10
	if s.caughtUp() || !s.reader.owedLocked() {
		t.Errorf("read to its end so far: %v, more is owed: %v; two messages are missing", s.caughtUp(), s.reader.owedLocked())
	}
	s.reader, s.end, s.l = nil, true, 10
	g.touchLocked(s)
	g.readLocked()
	if s.reader == nil {
		t.Error("it is not read")
	}
	s.reader = nil
}

// TestReader_NothingBeyondTheEnd: a replica that is no holder may not know the end of its extent, and have more.
func TestReader_NothingBeyondTheEnd(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(2, 0)
	g.mu.Lock()
	s.end, s.l = true, 2
	g.mu.Unlock()
	r := &reader{g: g, s: s, store: "store", granted: 1000}
	body, err := wire.AppendRecord(make([]byte, wire.BatchHeaderLen), &wire.Record{Payload: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	wire.PutBatchHeader(body, wire.BatchHeader{Count: 1, Base: 3})
	if err := r.batches(body, ws.Copy(body)); err == nil || s.rules.ReadFrom() != 3 {
		t.Errorf("%v, and it is read from %d on", err, s.rules.ReadFrom())
	}
}
