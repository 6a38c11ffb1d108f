package cancels

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// harness is one group, and two output hosts that say what the test wants.
type harness struct {
	t     *testing.T
	meta  metadata.Store
	group metadata.GroupRecord
	had   []metadata.GroupRecord // others, which were handed out everything
	at    core.Extent

	mu       sync.Mutex
	owner    core.HostID
	counter  uint64               // of the owner's assignment
	stale    map[core.HostID]bool // hosts that have the share by an earlier one
	consumed bool
	state    dispatch.State
	words    map[core.HostID]func() (string, error) // "": the share is not there; no entry: the host is not there
	follows  int
}

func newHarness(t *testing.T) *harness {
	id := core.NewID(time.Now())
	c := &harness{t: t, meta: memory.New(), counter: 7, stale: map[core.HostID]bool{}, at: core.Extent{ID: core.ExtentID{ID: id}, Kind: core.KindTimer}, words: map[core.HostID]func() (string, error){}}
	c.group.ID, c.group.Spec = core.GroupID{ID: id}, core.GroupSpec{Name: "g", Start: core.Start{Mode: core.StartEarliest}}
	return c
}

func says(word string) func() (string, error) { return func() (string, error) { return word, nil } }

func fails(err error) func() (string, error) { return func() (string, error) { return "", err } }

func (c *harness) Readers(context.Context, core.Extent) ([]metadata.GroupRecord, error) {
	return append([]metadata.GroupRecord{c.group}, c.had...), nil
}

func (c *harness) Owner(context.Context, core.GroupID, core.ExtentID) (Owner, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Owner{c.owner, c.counter}, nil
}

func (c *harness) Consumed(context.Context, metadata.GroupRecord, core.ExtentID) (bool, error) {
	return c.consumed, nil
}

func (c *harness) Saved(context.Context, metadata.GroupRecord, core.Extent) (dispatch.State, error) {
	return c.state, nil
}

func (c *harness) Outputs() (out []membership.Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.words {
		out = append(out, membership.Host{ID: id})
	}
	return out
}

func (c *harness) Hold(ctx context.Context, h membership.Host, req *pb.HoldTimersRequest) (*pb.HoldTimersResponse, error) {
	if book, _ := c.book(); len(book.Pending) == 0 {
		c.t.Error("messages are held that are not pending")
	}
	c.mu.Lock()
	say, counter := c.words[h.ID], c.counter
	if c.stale[h.ID] {
		counter--
	}
	c.mu.Unlock()
	word, err := say()
	out := &pb.HoldTimersResponse{}
	if word != "" {
		g := &pb.HoldTimersResponse_GroupHold{Group: req.Groups[0], Counter: counter}
		for range req.Messages {
			g.Messages = append(g.Messages, word)
		}
		out.Groups = append(out.Groups, g)
		for _, had := range c.had {
			g := &pb.HoldTimersResponse_GroupHold{Group: had.ID.ID[:]}
			for range req.Messages {
				g.Messages = append(g.Messages, string(dispatch.Handed))
			}
			out.Groups = append(out.Groups, g)
		}
	}
	return out, err
}

func (c *harness) Follow(context.Context, membership.Host, *pb.FollowCancelsRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follows++
	return nil
}

func (c *harness) book() (cancel.Book, error) {
	book, _, err := metadata.Read[cancel.Book](context.Background(), c.meta, metadata.Cancels, metadata.CancelKey(c.at.ID), metadata.Serial)
	return book, err
}

func (c *harness) set(owner core.HostID, host core.HostID, say func() (string, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner, c.words[host] = owner, say
}

// cancel cancels message 1, due in so long.
func (c *harness) cancel(due time.Duration) (cancel.Outcome, error) {
	x := Canceller{Meta: c.meta, Cluster: c, Now: time.Now}
	results, err := x.Cancel(c.t.Context(), c.at, []Message{{Seq: 1, Due: time.Now().Add(due), Enqueued: time.Now()}})
	if err != nil {
		return "", err
	}
	return results[0].Outcomes[0], nil
}

// TestCancel_ByWhatIsKnown cancels a message in every situation of its group's share.
func TestCancel_ByWhatIsKnown(t *testing.T) {
	broken := fmt.Errorf("no route")
	gone := fmt.Errorf("dial: %w", net.ErrClosed)
	for name, x := range map[string]struct {
		due   time.Duration
		given func(*harness)
		want  cancel.Outcome
		code  core.Code
		takes time.Duration // about
	}{
		"held by its owner":          {time.Second, func(c *harness) { c.set("a", "a", says("held")) }, cancel.Cancelled, "", 0},
		"handed out by its owner":    {time.Second, func(c *harness) { c.set("a", "a", says("delivered")) }, cancel.Delivered, "", 0},
		"due before its owner began": {-time.Second, func(c *harness) { c.set("a", "a", says("due")) }, cancel.Due, "", 0},
		"handed out by one of before": {time.Second, func(c *harness) {
			c.set("a", "a", says("held"))
			c.set("a", "b", says("delivered"))
		}, cancel.Delivered, "", 0},
		"consumed": {-time.Second, func(c *harness) { c.set("a", "a", says("")); c.consumed = true }, cancel.Delivered, "", 0},
		"before the group began": {time.Hour, func(c *harness) {
			c.set("a", "a", says("settled"))
			c.group.Spec.Start.Mode, c.group.Created = core.StartLatest, time.Now().Add(time.Minute)
		}, cancel.Cancelled, "", 0},
		"the owner does not have it yet":       {time.Hour, func(c *harness) { c.set("a", "a", says("")) }, "", core.CodeUnavailable, tryFor},
		"the owner does not answer":            {time.Hour, func(c *harness) { c.set("a", "a", fails(broken)) }, "", core.CodeUnavailable, tryFor},
		"the owner has it from before":         {time.Second, func(c *harness) { c.set("a", "a", says("held")); c.stale["a"] = true }, "", core.CodeUnavailable, tryFor},
		"the owner handed it out before":       {time.Second, func(c *harness) { c.set("a", "a", says("delivered")); c.stale["a"] = true }, cancel.Delivered, "", 0},
		"another one does not answer":          {time.Hour, func(c *harness) { c.set("a", "a", says("held")); c.set("a", "b", fails(broken)) }, cancel.Cancelled, "", 0},
		"another one may hand it out soon":     {6 * time.Second, func(c *harness) { c.set("a", "a", says("held")); c.set("a", "b", fails(broken)) }, cancel.Cancelled, "", 0},
		"another one may hand it out any time": {time.Second, func(c *harness) { c.set("a", "a", says("held")); c.set("a", "b", fails(broken)) }, "", core.CodeUnavailable, tryFor},
		"another one is dead":                  {time.Second, func(c *harness) { c.set("a", "a", says("held")); c.set("a", "b", fails(gone)) }, cancel.Cancelled, "", 0},
		"nobody owns it, due long after":       {time.Hour, func(c *harness) {}, cancel.Cancelled, "", 0},
		"nobody owns it, due soon":             {5500 * time.Millisecond, func(c *harness) {}, cancel.Cancelled, "", 0},
		"nobody owns it, due very soon":        {4500 * time.Millisecond, func(c *harness) {}, cancel.Cancelled, "", orphan},
		"nobody owns it, overdue":              {-time.Hour, func(c *harness) {}, cancel.Due, "", orphan},
		"nobody owns it, and it is settled":    {-time.Hour, func(c *harness) { c.state = dispatch.StartAfter(1) }, cancel.Delivered, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newHarness(t)
				x.given(c)
				began := time.Now()
				got, err := c.cancel(x.due)
				if got != x.want || core.CodeOf(err) != x.code {
					t.Fatalf("got %q, %v", got, err)
				}
				if took := time.Since(began); took < x.takes || took > x.takes+askTimeout {
					t.Errorf("it took %s, want about %s", took, x.takes)
				}
				book, err := c.book()
				if err != nil || len(book.Pending) > 0 || c.follows < len(c.words) {
					t.Errorf("pending are %v (%v), %d hosts were told", book.Pending, err, c.follows)
				}
				called, _ := book.Window()
				if called.Done(1) != (x.want == cancel.Cancelled) {
					t.Errorf("called off: %v", called.Done(1))
				}
				if x.want != cancel.Cancelled {
					return
				}
				c.words = nil // what was decided needs nobody
				if got, err := c.cancel(-time.Hour); got != x.want || err != nil {
					t.Errorf("again: %q, %v", got, err)
				}
			})
		})
	}
}

// TestCancel_FollowsTheOwner has the share move while a call is under way.
func TestCancel_FollowsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHarness(t)
		c.set("a", "a", fails(fmt.Errorf("reset")))
		time.AfterFunc(2*time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.words, "a")
			c.owner, c.words["b"] = "b", says("held")
		})
		if got, err := c.cancel(3 * time.Second); got != cancel.Cancelled || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}

// TestCancel_OneDecides has two calls cancel the same message at once: both answer the same.
func TestCancel_OneDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHarness(t)
		c.set("a", "a", func() (string, error) { time.Sleep(time.Second); return "held", nil })
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if got, err := c.cancel(time.Hour); got != cancel.Cancelled || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestCancel_AfterOneThatDied takes a message over that a call which died was deciding on.
func TestCancel_AfterOneThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHarness(t)
		c.set("a", "a", says("held"))
		left := cancel.Book{Pending: []cancel.Pending{{Seq: 1, Attempt: core.NewID(time.Now()), Began: time.Now()}}}
		if err := metadata.Create(t.Context(), c.meta, metadata.Cancels, metadata.CancelKey(c.at.ID), left); err != nil {
			t.Fatal(err)
		}
		if _, err := c.cancel(time.Hour); core.CodeOf(err) != core.CodeUnavailable {
			t.Fatalf("too early: %v", err)
		}
		time.Sleep(cancel.Patience)
		if got, err := c.cancel(time.Hour); got != cancel.Cancelled || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}

// TestCancel_OwnerThatIsNotSeen has an owner that this host's view of the cluster lacks, and that goes on all the same:
// the view does not say who is dead.
func TestCancel_OwnerThatIsNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHarness(t)
		c.set("a", "b", says("")) // another one is there
		if got, err := c.cancel(time.Hour); core.CodeOf(err) != core.CodeUnavailable {
			t.Fatalf("got %q, %v: its owner, which nobody asked, hands it out in an hour", got, err)
		}
		time.AfterFunc(time.Second, func() { c.set("a", "a", says("held")) })
		if got, err := c.cancel(time.Hour); got != cancel.Cancelled || err != nil {
			t.Fatalf("seen again: %q, %v", got, err)
		}
	})
}

// TestCancel_OneMessageTwice names a message twice in one call, which one of two groups has got.
func TestCancel_OneMessageTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHarness(t)
		c.set("a", "a", says("held"))
		other := metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(time.Now())}, Spec: core.GroupSpec{Name: "other"}}
		c.had = append(c.had, other)
		x := Canceller{Meta: c.meta, Cluster: c, Now: time.Now}
		m := Message{Seq: 1, Due: time.Now().Add(time.Hour), Enqueued: time.Now()}
		for range 2 { // decided, and then looked up
			results, err := x.Cancel(t.Context(), c.at, []Message{m, m})
			if err != nil {
				t.Fatal(err)
			}
			want := []Result{{"g", []cancel.Outcome{cancel.Cancelled, cancel.Cancelled}}, {"other", []cancel.Outcome{cancel.Delivered, cancel.Delivered}}}
			if diff := cmp.Diff(want, results); diff != "" {
				t.Fatalf("results (-want +got):\n%s", diff)
			}
		}
		if book, err := c.book(); err != nil || len(book.Kept) != 1 {
			t.Errorf("the book keeps %v (%v), want it once", book.Kept, err)
		}
	})
}
