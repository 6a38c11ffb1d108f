package inputhost

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// watched is a store whose reads of queues are counted and whose watches can be lost.
type watched struct {
	metadata.Store
	reads atomic.Int64
	end   atomic.Pointer[context.CancelFunc] // of the watch under way
	lost  atomic.Bool                        // no watch is possible
}

func (w *watched) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == metadata.Queues {
		w.reads.Add(1)
	}
	return w.Store.Get(ctx, t, k, c)
}

func (w *watched) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if t != metadata.Queues {
		return w.Store.Watch(ctx, t, partition, changed)
	}
	if w.lost.Load() {
		return core.Errorf(core.CodeUnavailable, "no watch now")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.end.Store(&cancel)
	return w.Store.Watch(ctx, t, partition, changed)
}

func (w *watched) lose() {
	w.lost.Store(true)
	(*w.end.Load())()
}

func watching(t *testing.T, f func(r *harness, w *watched)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{}
		r := &harness{t: t, over: func(s metadata.Store) metadata.Store { w.Store = s; return w }}
		r.start(3, nil)
		defer r.stop()
		f(r, w)
	})
}

// set changes the status of a queue.
func (r *harness) set(id core.QueueID, s core.Status) {
	r.t.Helper()
	_, err := metadata.Change(context.Background(), r.meta, metadata.Queues, metadata.QueueKey(id), func(q *metadata.QueueRecord) error {
		q.Spec.Status = s
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// published are the queues that somebody may publish to.
func (r *harness) published() (n int) {
	for _, q := range r.host.list() {
		if q.published() {
			n++
		}
	}
	return n
}

// session is a connection to the host.
func (r *harness) session() *session {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	for s := range r.host.mu.sessions {
		return s
	}
	return nil
}

// TestSettings_StatusReachesPublishers refuses what is published while the queue takes nothing, on the stream that goes
// on afterwards; what was taken before is acknowledged.
func TestSettings_StatusReachesPublishers(t *testing.T) {
	watching(t, func(r *harness, w *watched) {
		id := r.queue("/t/status")
		p := r.publisher("p", "/t/status")
		p.send()
		p.flush()
		for _, s := range r.stores {
			s.set(func() { s.group = 3 * time.Second })
		}
		p.send() // under way when the status changes
		r.set(id, core.StatusReceiveOnly)
		time.Sleep(2 * time.Second)
		if n := len(r.open("/t/status")); n != 0 {
			t.Errorf("%d extents are open of a queue that takes no messages", n)
		}
		refused := make(chan error, 1)
		record := wire.Record{Payload: []byte("refused")}
		if err := p.pub.Append(t.Context(), &record, 0, publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) { refused <- err })); err != nil {
			t.Fatal(err)
		}
		if err := <-refused; core.CodeOf(err) != core.CodeDisabled || !strings.Contains(err.Error(), "columba update queue /t/status --status enabled") {
			t.Errorf("a queue that takes no messages says %v", err)
		}
		p.flush() // fails the test if any was not acknowledged
		if n := r.published(); n != 1 {
			t.Error("its publisher has lost its stream")
		}
		r.set(id, core.StatusEnabled)
		time.Sleep(2 * time.Second)
		p.send()
		p.flush()
	})
}

// TestEnsure_SaysTheRowOfTheQueue: the controller makes an extent by the row that the input host has.
func TestEnsure_SaysTheRowOfTheQueue(t *testing.T) {
	watching(t, func(r *harness, w *watched) {
		id := r.queue("/t/row")
		p := r.publisher("p", "/t/row")
		p.send()
		p.flush()
		want, _, err := metadata.Read[metadata.QueueRecord](t.Context(), r.meta, metadata.Queues, metadata.QueueKey(id), metadata.Serial)
		if err != nil {
			t.Fatal(err)
		}
		r.ctl.mu.Lock()
		defer r.ctl.mu.Unlock()
		got, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, metadata.Row{Value: r.ctl.mu.row})
		if err != nil || got != want {
			t.Errorf("the controller got %+v, %v, want %+v", got, err, want)
		}
	})
}

// A change that happens while nothing can be watched is known as soon as it can be again.
func TestSettings_LostWatch(t *testing.T) {
	watching(t, func(r *harness, w *watched) {
		id := r.queue("/t/lost")
		p := r.publisher("p", "/t/lost")
		p.send()
		p.flush()
		time.Sleep(2 * readPause)
		w.lose()
		synctest.Wait()
		r.set(id, core.StatusDeleted)
		time.Sleep(5 * time.Second)
		if n := r.published(); n != 1 {
			t.Fatalf("%d published queues while nothing is known of the change, want 1", n)
		}
		w.lost.Store(false)
		time.Sleep(readAgain + readPause)
		if n := r.published(); n != 0 {
			t.Error("a deleted queue is published to")
		}
	})
}

// A publisher whose queue was looked up just before it was deleted must not stay.
func TestSettings_OldRecord(t *testing.T) {
	watching(t, func(r *harness, w *watched) {
		id := r.queue("/t/old")
		p := r.publisher("p", "/t/old")
		p.send()
		p.flush()
		changes := r.host.settings.changes.Load()
		record, version, err := metadata.Read[metadata.QueueRecord](context.Background(), r.meta, metadata.Queues, metadata.QueueKey(id), metadata.One)
		if err != nil {
			t.Fatal(err)
		}
		r.set(id, core.StatusDeleted)
		time.Sleep(2 * time.Second)
		late := &publisher{s: r.session()}
		late.hello.Store(true)
		late.queue = r.host.queueOf(record, metadata.Reading{Version: version}, late)
		r.host.settings.since(changes)
		time.Sleep(2 * time.Second)
		if r.published() != 0 {
			t.Error("a publisher whose queue was looked up before it was deleted stays")
		}
	})
}

// Queues that nothing changes about cost no reads.
func TestSettings_NoReadsWithoutChange(t *testing.T) {
	watching(t, func(r *harness, w *watched) {
		const queues = 20
		for i := range queues {
			path := fmt.Sprintf("/t/quiet%d", i)
			r.queue(path)
			p := r.publisher(fmt.Sprint("p", i), path)
			p.send()
			p.flush()
		}
		time.Sleep(2 * readPause)
		before := w.reads.Load()
		time.Sleep(5 * readAnyway)
		if n := w.reads.Load() - before; n > 6*queues {
			t.Errorf("%d reads of %d queues in %s without a change", n, queues, 5*readAnyway)
		}
	})
}
