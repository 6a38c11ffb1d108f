package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

func TestPublisher_SyncAndAsync(t *testing.T) {
	f := startFake(t, &fake{})
	ctx := limited(t)
	p, err := dial(t, f).Publisher(ctx, "/t/q")
	if err != nil {
		t.Fatal(err)
	}
	id := NewMessageID()
	r, err := p.Publish(ctx, Message{Body: []byte("a"), ID: id, Key: "k", Headers: map[string]string{"h": "v"}})
	if err != nil || r.ID != id || r.Seq != 1 || r.Extent != f.input.Extent {
		t.Errorf("publish: %v, %v", r, err)
	}
	var want []string
	var told atomic.Int32
	for i := range 100 {
		body := fmt.Sprintf("m%d", i)
		want = append(want, body)
		err := p.PublishAsync(ctx, Message{Body: []byte(body)}, func(r Receipt, err error) {
			if err != nil || r.ID.IsZero() || int32(r.Seq) != told.Add(1)+1 {
				t.Errorf("%s: %v, %v", body, r, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if told.Load() != 100 {
		t.Errorf("%d outcomes after flush, want 100", told.Load())
	}
	if diff := cmp.Diff(append([]string{"a"}, want...), f.input.Stored()); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestPublisher_DeadlineOfTheContext(t *testing.T) {
	f := startFake(t, &fake{input: &publishtest.Host{OnBatch: func(b *publishtest.Batch) { b.Store() }}})
	p, err := dial(t, f).Publisher(limited(t), "/t/q")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Publish(ctx, Message{}); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v, want unknown outcome", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	if _, err := p.Publish(ctx, Message{}); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("published with a context that is over: got %v, want unavailable and cancelled", err)
	}
	if err := p.PublishAsync(ctx, Message{}, nil); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("took a message with a context that is over: got %v, want unavailable and cancelled", err)
	}
	p.Close(ctx)
}

func TestPublisher_BadInput(t *testing.T) {
	f := startFake(t, &fake{})
	ctx := limited(t)
	c := dial(t, f)
	if _, err := c.Publisher(ctx, "/x"); !errors.Is(err, ErrBadName) {
		t.Errorf("bad path: %v", err)
	}
	p, err := c.Publisher(ctx, "/t/q")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(ctx)
	for name, m := range map[string]Message{
		"long delay": {Delay: core.MaxAhead + 1}, "far off": {DeliverAt: time.Now().Add(core.MaxAhead + time.Hour)}, "in 1970": {DeliverAt: time.Unix(0, 0)},
		"negative delay": {Delay: -1}, "two times": {Delay: time.Second, DeliverAt: time.Now()}, "expired in 1970": {ExpireAt: time.Unix(0, 0)},
		"expires in its delay": {Delay: time.Hour, ExpireAt: time.Now().Add(time.Minute)}, "expires when due": {DeliverAt: time.Now().Add(time.Hour), ExpireAt: time.Now().Add(time.Minute)},
		"long key": {Key: string(make([]byte, 200))}, "large body": {Body: make([]byte, 2<<20)},
		"large header": {Headers: map[string]string{"h": string(make([]byte, 70<<10))}},
	} {
		if _, err := p.Publish(ctx, m); core.CodeOf(err).Class() != core.ClassFatal {
			t.Errorf("%s: %v, want a fatal error", name, err)
		}
	}
	if _, err := p.Publish(ctx, Message{}); err != nil {
		t.Errorf("empty message: %v", err)
	}
}

// TestMessage_IsNeverDueEarly: what is not a whole millisecond is rounded up.
func TestMessage_IsNeverDueEarly(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	for _, c := range []struct {
		m         Message
		at, delay int64
	}{
		{Message{}, 0, 0}, {Message{Delay: 1}, 0, 1}, {Message{Delay: time.Second}, 0, 1000}, {Message{Delay: time.Second + 1}, 0, 1001},
		{Message{Delay: core.MaxAhead}, 0, core.MaxAhead.Milliseconds()},
		{Message{DeliverAt: at}, at.UnixMilli(), 0}, {Message{DeliverAt: at.Add(1)}, at.UnixMilli() + 1, 0},
	} {
		var r wire.Record
		if err := c.m.record(&r); err != nil || r.DeliverAt != c.at || r.Delay != c.delay {
			t.Errorf("delay %s, at %s: deliver_at %d, delay %d, %v; want %d, %d", c.m.Delay, c.m.DeliverAt, r.DeliverAt, r.Delay, err, c.at, c.delay)
		}
	}
}

func TestPublisher_NotFound(t *testing.T) {
	f := startFake(t, &fake{route: func() ([]*pb.HostAddress, error) {
		return nil, core.Errorf(core.CodeNotFound, "queue /t/q is not there; create it first")
	}})
	if _, err := dial(t, f).Publisher(limited(t), "/t/q"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestDial_NobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if _, err := Dial(limited(t), addr); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	if _, err := Dial(limited(t), "nowhere"); !errors.Is(err, ErrBadArgument) {
		t.Errorf("got %v, want bad argument", err)
	}
}

func TestClient_CloseEndsEverything(t *testing.T) {
	f := startFake(t, &fake{})
	ctx := limited(t)
	c := dial(t, f)
	p, err := c.Publisher(ctx, "/t/q")
	if err != nil {
		t.Fatal(err)
	}
	con, err := c.Consumer(ctx, "/t/q", "g")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := p.Publish(ctx, Message{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("publish: %v", err)
	}
	for _, err := range con.Deliveries(ctx) {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("deliveries: %v", err)
		}
	}
	if _, err := c.Publisher(ctx, "/t/q"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("publisher: %v", err)
	}
	con.Close(ctx)
	p.Close(ctx)
}

// TestPublisherNamesASilentFrontend: a server that takes connections and answers nothing, as a stopped process, is
// named in the error.
func TestPublisherNamesASilentFrontend(t *testing.T) {
	release := make(chan struct{})
	f := startFake(t, &fake{route: func() ([]*pb.HostAddress, error) {
		<-release
		return nil, core.ErrUnavailable
	}})
	defer close(release)
	c, err := Dial(t.Context(), f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = c.Publisher(ctx, "/t/q")
	if want := "server " + f.addr + " did not answer"; core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v (%s), want %s with %q", err, core.CodeOf(err), core.CodeUnavailable, want)
	}
}
