package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a running publisher and the hosts it can reach.
type rig struct {
	*Publisher
	mu  sync.Mutex
	got map[string]error // by id
	at  map[string]core.Receipt
}

func start(t testing.TB, cfg Config, hosts ...*publishtest.Host) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[string]*ws.Mux{}
	if cfg.Route == nil {
		cfg.Route = func(context.Context) ([]Host, error) {
			var out []Host
			for i, h := range hosts {
				out = append(out, Host{ID: core.HostID(fmt.Sprintf("in%d", i)), Address: h.Addr()})
			}
			return out, nil
		}
	}
	cfg.Queue, cfg.Client = "/t/q", "test"
	cfg.Dial = func(ctx2 context.Context, h Host) (*ws.Mux, error) {
		mu.Lock()
		m := open[h.Address]
		mu.Unlock()
		if m != nil {
			return m, nil
		}
		c, err := ws.Dial(ctx2, h.Address, "/v1/publish", ws.Options{})
		if err != nil {
			return nil, core.Errorf(core.CodeUnavailable, "dial: %w", err)
		}
		m = ws.NewMux(c, nil)
		mu.Lock()
		open[h.Address] = m
		mu.Unlock()
		wg.Go(func() {
			m.Run(ctx)
			mu.Lock()
			delete(open, h.Address)
			mu.Unlock()
		})
		return m, nil
	}
	r := &rig{Publisher: New(cfg), got: map[string]error{}, at: map[string]core.Receipt{}}
	wg.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return r
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (r *rig) append(t testing.TB, payload string, timeout time.Duration) {
	t.Helper()
	err := r.Append(limited(t), &wire.Record{Payload: []byte(payload)}, timeout, DoneFunc(func(_ core.MessageID, at core.Receipt, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, twice := r.got[payload]; twice {
			t.Errorf("%q was told twice", payload)
		}
		r.got[payload], r.at[payload] = err, at
	}))
	if err != nil {
		t.Fatalf("append %q: %v", payload, err)
	}
}

func (r *rig) flush(t testing.TB) {
	t.Helper()
	if err := r.Flush(limited(t)); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

func (r *rig) wantAll(t testing.TB, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != n {
		t.Errorf("got %d outcomes, want %d", len(r.got), n)
	}
	for payload, err := range r.got {
		if err != nil {
			t.Errorf("%q: %v", payload, err)
		}
	}
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%04d", i)
	}
	return out
}

func TestPublisher_OrderAndReceipts(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{})
	r := start(t, Config{}, h)
	want := names(2000)
	for _, s := range want {
		r.append(t, s, 0)
	}
	r.flush(t)
	r.wantAll(t, len(want))
	if diff := cmp.Diff(want, h.Stored()); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	for i, s := range want {
		if got, want := r.at[s], (core.Receipt{Extent: h.Extent, Seq: core.Seq(i + 1)}); got != want {
			t.Fatalf("%s: receipt %v, want %v", s, got, want)
		}
	}
	if err := r.Close(limited(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := r.Append(limited(t), &wire.Record{}, 0, nil); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("append after close: %v", err)
	}
}

func TestPublisher_AnswersOutOfOrderAndSplit(t *testing.T) {
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		base := b.Store()
		var runs []wire.AckRun
		for i := range b.Count {
			runs = append(runs, wire.AckRun{First: b.First + uint64(i), Count: 1, Extent: h.Extent, Base: base + core.Seq(i)})
		}
		slices.Reverse(runs)
		b.Answer(runs[:len(runs)/2]...)
		b.Answer(runs[len(runs)/2:]...)
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	want := names(500)
	for _, s := range want {
		r.append(t, s, 0)
	}
	r.flush(t)
	r.wantAll(t, len(want))
	for i, s := range want {
		if r.at[s].Seq != core.Seq(i+1) {
			t.Fatalf("%s: seq %d, want %d", s, r.at[s].Seq, i+1)
		}
	}
}

// A host that stores and then loses the connection before it answers: everything is sent again, in order.
func TestPublisher_LostConnectionSendsAgain(t *testing.T) {
	var cuts atomic.Int32
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		if cuts.Add(1) <= 3 {
			b.Store()
			b.Cut()
			return
		}
		b.Ack()
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	want := names(300)
	for _, s := range want {
		r.append(t, s, 0)
	}
	r.flush(t)
	r.wantAll(t, len(want))
	var first []string
	seen := map[string]bool{}
	for _, s := range h.Stored() {
		if !seen[s] {
			seen[s] = true
			first = append(first, s)
		}
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("first stored (-want +got):\n%s", diff)
	}
	if len(h.Stored()) <= len(want) {
		t.Errorf("stored %d, want duplicates beyond %d", len(h.Stored()), len(want))
	}
}

func TestPublisher_UnansweredIsUnknown(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) { b.Store() }})
	r := start(t, Config{Timeout: 100 * time.Millisecond}, h)
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unknown outcome", err)
	}
}

// A try that was lost makes a later definite refusal unknown too: the first may have stored the message.
func TestPublisher_RefusedAfterLostIsUnknown(t *testing.T) {
	var n atomic.Int32
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		if n.Add(1) == 1 {
			b.Cut()
			return
		}
		b.Refuse(core.CodeDisabled)
	}})
	r := start(t, Config{}, h)
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unknown outcome", err)
	}
}

func TestPublisher_NeverSentIsUnavailable(t *testing.T) {
	r := start(t, Config{Timeout: 100 * time.Millisecond})
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestPublisher_FatalRefusalFailsAtOnce(t *testing.T) {
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		runs := []wire.AckRun{{First: b.First, Count: 1, Status: wire.AckRefused, Code: core.CodeTooLarge}}
		if b.Count > 1 {
			runs = append(runs, wire.AckRun{First: b.First + 1, Count: uint32(b.Count - 1), Extent: h.Extent, Base: 7})
		}
		b.Answer(runs...)
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("got %v, want too large", err)
	}
	if err := r.Append(limited(t), &wire.Record{Payload: make([]byte, 2<<20)}, 0, nil); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("append over the host's limit: %v, want too large", err)
	}
}

func TestPublisher_RetryableRefusalIsSentAgain(t *testing.T) {
	for _, code := range []core.Code{core.CodeUnavailable, core.CodeThrottled, core.CodeDraining, core.CodeFenced} {
		t.Run(string(code), func(t *testing.T) {
			var n atomic.Int32
			h := &publishtest.Host{}
			h.OnBatch = func(b *publishtest.Batch) {
				if n.Add(1) <= 2 {
					b.Refuse(code)
					return
				}
				b.Ack()
			}
			publishtest.Start(t, h)
			r := start(t, Config{}, h)
			want := names(50)
			for _, s := range want {
				r.append(t, s, 0)
			}
			r.flush(t)
			r.wantAll(t, len(want))
			got := h.Stored()
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublisher_PartlyRefusedBatchSendsTheRestAgain(t *testing.T) {
	h := &publishtest.Host{}
	var batches []int
	h.OnBatch = func(b *publishtest.Batch) {
		if batches = append(batches, b.Count); len(batches) > 1 {
			b.Ack()
			return
		}
		b.Answer( // the second and the fourth are refused, the last is lost
			wire.AckRun{First: 1, Count: 1, Extent: h.Extent, Base: 1000},
			wire.AckRun{First: 2, Count: 1, Status: wire.AckRefused, Code: core.CodeUnavailable},
			wire.AckRun{First: 3, Count: 1, Extent: h.Extent, Base: 1001},
			wire.AckRun{First: 4, Count: 1, Status: wire.AckRefused, Code: core.CodeUnavailable},
			wire.AckRun{First: 5, Count: uint32(b.Count - 5), Extent: h.Extent, Base: 1002},
			wire.AckRun{First: uint64(b.Count), Count: 1, Status: wire.AckUnknown, Code: core.CodeUnavailable})
	}
	publishtest.Start(t, h)
	gathered := make(chan struct{})
	r := start(t, Config{Route: func(context.Context) ([]Host, error) {
		<-gathered
		return []Host{{ID: "in0", Address: h.Addr()}}, nil
	}})
	want := names(400)
	for _, s := range want {
		r.append(t, s, 0)
	}
	close(gathered)
	r.flush(t)
	r.wantAll(t, len(want))
	if diff := cmp.Diff([]string{want[1], want[3], want[399]}, h.Stored()); diff != "" {
		t.Errorf("sent again (-want +got):\n%s", diff)
	}
	for i, seq := range map[int]core.Seq{0: 1000, 1: 1, 2: 1001, 3: 2, 4: 1002, 399: 3} {
		if r.at[want[i]].Seq != seq {
			t.Errorf("%s: seq %d, want %d", want[i], r.at[want[i]].Seq, seq)
		}
	}
}

func TestPublisher_ThrottledWaits(t *testing.T) {
	var throttled atomic.Bool
	var early atomic.Int32
	var until atomic.Int64
	began := time.Now()
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		if !throttled.Swap(true) {
			b.Throttle(150 * time.Millisecond)
			b.Refuse(core.CodeThrottled)
			until.Store(int64(time.Since(began) + 140*time.Millisecond))
			return
		}
		if int64(time.Since(began)) < until.Load() {
			early.Add(1)
		}
		b.Ack()
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	r.append(t, "a", 0)
	r.flush(t)
	r.wantAll(t, 1)
	if early.Load() > 0 {
		t.Errorf("%d batches came within the pause", early.Load())
	}
}

func TestPublisher_ThrottledToTheEnd(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		b.Throttle(time.Hour)
		b.Refuse(core.CodeThrottled)
	}})
	r := start(t, Config{Timeout: 100 * time.Millisecond}, h)
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrThrottled) || errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want throttled", err)
	}
}

// A draining host gets its answers in; new records go to the other one.
func TestPublisher_DrainMovesOn(t *testing.T) {
	var held atomic.Pointer[publishtest.Batch]
	drained := &publishtest.Host{}
	drained.OnBatch = func(b *publishtest.Batch) {
		if held.CompareAndSwap(nil, b) {
			b.Drain()
			return
		}
		t.Error("a batch came after the drain")
	}
	publishtest.Start(t, drained)
	other := publishtest.Start(t, &publishtest.Host{})
	var routed atomic.Int32
	cfg := Config{}
	cfg.Route = func(context.Context) ([]Host, error) {
		hosts := []Host{{ID: "drained", Address: drained.Addr()}}
		if routed.Add(1) > 1 {
			hosts = append(hosts, Host{ID: "other", Address: other.Addr()})
		}
		return hosts, nil
	}
	r := start(t, cfg)
	r.append(t, "a", 0)
	eventually(t, func() bool { return held.Load() != nil })
	eventually(t, func() bool { r.Publisher.mu.Lock(); defer r.Publisher.mu.Unlock(); return r.Publisher.mu.active == nil })
	r.append(t, "b", 0)
	eventually(t, func() bool { return len(other.Stored()) == 1 })
	held.Load().AckAt(5)
	r.flush(t)
	r.wantAll(t, 2)
	if got := r.at["a"]; got != (core.Receipt{Extent: drained.Extent, Seq: 5}) {
		t.Errorf("a: receipt %v", got)
	}
}

func TestPublisher_HelloRefusedForGood(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnHello: func(*pb.PublishHello) error {
		return core.Errorf(core.CodeNotFound, "queue /t/q is not there; create it first")
	}})
	r := start(t, Config{}, h)
	if err := r.Connect(limited(t)); !errors.Is(err, core.ErrNotFound) {
		t.Errorf("connect: %v, want not found", err)
	}
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrNotFound) {
		t.Errorf("publish: %v, want not found", err)
	}
}

func TestPublisher_FullWaitsForRoom(t *testing.T) {
	var held atomic.Pointer[publishtest.Batch]
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		if !held.CompareAndSwap(nil, b) {
			b.Ack()
		}
	}})
	r := start(t, Config{MaxRecords: 1}, h)
	r.append(t, "a", 0)
	eventually(t, func() bool { return held.Load() != nil })
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		r.append(t, "b", 0)
	}()
	eventually(t, func() bool { r.Publisher.mu.Lock(); defer r.Publisher.mu.Unlock(); return r.Publisher.mu.room != nil })
	select {
	case <-waited:
		t.Error("a full publisher took a record")
	default:
	}
	held.Load().AckAt(9)
	<-waited
	r.flush(t)
	r.wantAll(t, 2)
}

// An owner that appends the record again when it failed finds its room, also in a full publisher.
func TestPublisher_OwnerAppendsAgain(t *testing.T) {
	var n atomic.Int32
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		if n.Add(1) <= 5 {
			b.Refuse(core.CodeTooLarge)
			return
		}
		b.Ack()
	}})
	r := start(t, Config{MaxRecords: 1}, h)
	stored := make(chan struct{})
	var again func(core.MessageID, core.Receipt, error)
	again = func(_ core.MessageID, _ core.Receipt, err error) {
		if err == nil {
			close(stored)
			return
		}
		if err := r.Append(limited(t), &wire.Record{}, 0, DoneFunc(again)); err != nil {
			t.Error(err)
			close(stored)
		}
	}
	if err := r.Append(limited(t), &wire.Record{}, 0, DoneFunc(again)); err != nil {
		t.Fatal(err)
	}
	<-stored
}

func TestPublisher_FullEndsWithContext(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(*publishtest.Batch) {}})
	r := start(t, Config{MaxRecords: 1}, h)
	r.append(t, "a", 0)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	err := r.Append(ctx, &wire.Record{}, 0, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("append to a full publisher: %v", err)
	}
}

func TestPublisher_CloseWithoutAnswers(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(*publishtest.Batch) {}})
	r := start(t, Config{}, h)
	r.append(t, "a", 0)
	eventually(t, func() bool {
		r.Publisher.mu.Lock()
		defer r.Publisher.mu.Unlock()
		return r.Publisher.mu.current == nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); err == nil {
		t.Error("close with records under way succeeded")
	}
	if err := r.got["a"]; !errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unknown outcome", err)
	}
}

func TestPublisher_ManyProducersThroughCuts(t *testing.T) {
	h := &publishtest.Host{}
	var n atomic.Int32
	h.OnBatch = func(b *publishtest.Batch) {
		switch k := n.Add(1); {
		case k%37 == 0:
			b.Store()
			b.Cut()
		case k%11 == 0:
			b.Refuse(core.CodeUnavailable)
		default:
			b.Ack()
		}
	}
	publishtest.Start(t, h)
	r := start(t, Config{MaxRecords: 200}, h)
	var wg sync.WaitGroup
	const producers, each = 4, 500
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				r.append(t, fmt.Sprintf("%d-%d", p, i), 0)
			}
		})
	}
	wg.Wait()
	r.flush(t)
	r.wantAll(t, producers*each)
	stored := map[string]bool{}
	for _, s := range h.Stored() {
		stored[s] = true
	}
	if len(stored) != producers*each {
		t.Errorf("stored %d different messages, want %d", len(stored), producers*each)
	}
}

func TestIDSource(t *testing.T) {
	s := newIDSource()
	var last core.MessageID
	for i := range 20000 {
		id := s.next(1_700_000_000_000 + int64(i/9000))
		if id.String() <= last.String() {
			t.Fatalf("%v does not follow %v", id, last)
		}
		if id.ID[6]>>4 != 7 || id.ID[8]>>6 != 2 {
			t.Fatalf("%v is not a UUIDv7", id)
		}
		last = id
	}
	if got := s.next(0); got.String() <= last.String() {
		t.Errorf("%v after the clock went back does not follow %v", got, last)
	}
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("condition not met within 10 s")
		}
		<-tick.C
	}
}
