package inspect

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/wire"
)

// oneShare is a group that has one share here.
type oneShare struct {
	Group
	sync.Mutex
	share heldShare
}

func (g *oneShare) Lock()            { g.Mutex.Lock() }
func (g *oneShare) Unlock()          { g.Mutex.Unlock() }
func (g *oneShare) ID() core.GroupID { return core.GroupID{} }
func (g *oneShare) Shares() []Share  { return []Share{g.share} }

type heldShare struct {
	Share
	rules *dispatch.Share
	last  core.Seq
}

func (s heldShare) Extent() core.Extent    { return core.Extent{ID: s.rules.Extent()} }
func (s heldShare) Rules() *dispatch.Share { return s.rules }
func (s heldShare) Reading() Reading       { return Reading{} }
func (s heldShare) Last() core.Seq         { return s.last }

// groupHost is a host with one group.
type groupHost struct {
	*harness
	group Group
}

func (h groupHost) Self() membership.Host { return membership.Host{ID: "self"} }
func (h groupHost) Group(context.Context, string, string) (Group, func(), error) {
	return h.group, func() {}, nil
}
func (h groupHost) QueueID(context.Context, string) (core.QueueID, error) { return core.QueueID{}, nil }

// TestListWaiting_LargeAttributes lists messages with headers of 64 KB that wait after a failed attempt: the group is
// locked meanwhile, and no message is delivered or settled, so a page has about a megabyte of them however large its
// limit is, and all pages together have each message once.
func TestListWaiting_LargeAttributes(t *testing.T) {
	const messages = 100
	now := time.Unix(1_700_000_000, 0)
	rules := dispatch.NewGroup(core.GroupSpec{}.WithDefaults())
	s := rules.AddShare(core.ExtentID{ID: core.ID{1}}, dispatch.State{}, now)
	headers, err := wire.AppendHeaders(nil, [2]string{"h", strings.Repeat("x", 64_000)})
	if err != nil {
		t.Fatal(err)
	}
	r := dispatch.Records{Base: 1, Offsets: []uint32{0}}
	for range messages {
		if r.Bytes, err = wire.AppendRecord(r.Bytes, &wire.Record{Headers: headers, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		r.Offsets = append(r.Offsets, uint32(len(r.Bytes)))
	}
	if err := s.Offer(r, now); err != nil {
		t.Fatal(err)
	}
	rules.Take(1, dispatch.Credit{Messages: messages, Bytes: 1 << 30}, now, nil)
	for seq := core.Seq(1); seq <= messages; seq++ {
		if err := s.Nack(seq, 1, 20*time.Second, nil, 0, now); err != nil {
			t.Fatal(err)
		}
	}
	x := New(Config{}, groupHost{newHarness(t), &oneShare{share: heldShare{rules: s, last: messages}}})
	behind := core.Receipt{Extent: s.Extent(), Seq: math.MaxUint64}
	if page, err := x.ListWaiting(t.Context(), &pb.ListWaitingRequest{After: behind.String()}); err != nil || len(page.Messages) > 0 {
		t.Errorf("behind the largest seq: %d messages, %v", len(page.GetMessages()), err)
	}
	after, pages, seen := "", 0, map[string]bool{}
	for more := true; more; more = after != "" {
		page, err := x.ListWaiting(t.Context(), &pb.ListWaitingRequest{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, m := range page.Messages {
			size += len(m.Message.Headers["h"])
			seen[m.Receipt] = true
		}
		if size > waitingBytes+wire.MaxAttributes {
			t.Errorf("a page has %d bytes of headers, want %d at most", size, waitingBytes)
		}
		after = page.Next
		pages++
	}
	if len(seen) != messages || pages < 6 {
		t.Errorf("%d messages on %d pages, want %d", len(seen), pages, messages)
	}
}
