package outputhost

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// TestWhyStuck_NamesAnExtentThatIsNotTheOldest: a consumer holds the oldest message of the group, and a later extent
// cannot be read from its only store, which is there. why-stuck names the consumer, and the extent besides.
func TestWhyStuck_NamesAnExtentThatIsNotTheOldest(t *testing.T) {
	b := newHarness(t)
	store := membership.Host{ID: "store", Roles: []string{"storehost"}, Address: "127.0.0.1:0"}
	if err := b.deps.Members.(*static.Monitor).Set([]membership.Host{b.deps.Members.Self(), store}); err != nil {
		t.Fatal(err)
	}
	_, first := b.group()
	second := proto.Clone(first).(*pb.Assignment)
	id := core.NewID(time.Now().Add(time.Second))
	second.Extent.Id = id[:]
	if err := b.give(1, first, second); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	g.mu.Lock()
	unread := g.mu.shares[core.ExtentID{ID: id}]
	for _, s := range g.mu.shares {
		s.end, s.l, s.last = true, 1, 1
		if s == unread {
			continue
		}
		if err := s.rules.Offer(dispatch.Records{Base: 1, Offsets: []uint32{0, 1}, Bytes: []byte{0}, Enqueued: b.deps.Now().UnixMicro()}, b.deps.Now()); err != nil {
			t.Fatal(err)
		}
	}
	g.mu.rules.Want(dispatch.Credit{Messages: 1, Bytes: 1 << 20}, true)
	g.mu.rules.Take(1, dispatch.Credit{Messages: 1, Bytes: 1 << 20}, b.deps.Now(), nil)
	g.mu.Unlock()
	refused := &reader{g: g, s: unread, store: store.ID}
	refused.failed(core.Errorf(core.CodeInternal, "too many open files"), b.deps.Now())
	why, err := b.inspector.WhyStuck(t.Context(), inspectedGroup{g})
	if err != nil {
		t.Fatal(err)
	}
	if why.Reason != "in_flight" || !slices.Contains(why.Also, "no_readable_replica") || !strings.Contains(why.Detail, id.String()) {
		t.Errorf("got %s, %v, %q; want in_flight, also no_readable_replica, and extent %s", why.Reason, why.Also, why.Detail, id)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	unread.reader = &reader{g: g, s: unread, told: true}
	if (inspectedShare{unread}).View(b.deps.Now()).Unreadable {
		t.Error("an extent that a store reads is told to be unreadable, since others failed before")
	}
	unread.reader.stopped.Store(true)
	if !(inspectedShare{unread}).View(b.deps.Now()).Unreadable {
		t.Error("an extent whose last read stream ended with an error is told to be readable")
	}
	unread.reader = nil
}
