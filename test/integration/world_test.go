package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

const queue = "/t/q"

const events = "columba_outputhost_group_events_total"

// world is a server of its own with a queue and a client.
type world struct {
	t      *testing.T
	server *process.Server
	client *client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	s := process.StartServer(t)
	w := &world{t: t, server: s, client: s.Client()}
	w.create(queue)
	return w
}

func (w *world) create(path string) {
	w.t.Helper()
	if _, err := w.client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: path}); err != nil {
		w.t.Fatal(err)
	}
}

// group creates a group that begins with the first message, unless change says otherwise.
func (w *world) group(name string, change func(*core.GroupSpec)) {
	w.t.Helper()
	spec := core.GroupSpec{Queue: queue, Name: name, Start: core.Start{Mode: core.StartEarliest}}
	if change != nil {
		change(&spec)
	}
	if _, err := w.client.Admin().CreateGroup(w.t.Context(), spec); err != nil {
		w.t.Fatal(err)
	}
}

// publish returns when all messages are durable.
func (w *world) publish(bodies ...string) []client.Receipt {
	w.t.Helper()
	var messages []client.Message
	for _, b := range bodies {
		messages = append(messages, client.Message{Body: []byte(b)})
	}
	return w.send(messages...)
}

func (w *world) send(messages ...client.Message) []client.Receipt {
	w.t.Helper()
	p, err := w.client.Publisher(w.t.Context(), queue)
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Close(w.t.Context())
	out := make([]client.Receipt, len(messages))
	for i, m := range messages {
		err := p.PublishAsync(w.t.Context(), m, func(r client.Receipt, err error) {
			if err != nil {
				w.t.Errorf("publish %q: %v", m.Body, err)
			}
			out[i] = r
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := p.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// numbers are n bodies, from first on.
func numbers(first, n int) []string {
	var out []string
	for i := range n {
		out = append(out, strconv.Itoa(first+i))
	}
	return out
}

// consumer is closed when the test ends, at the latest.
func (w *world) consumer(group string, opts ...client.ConsumerOption) *client.Consumer {
	w.t.Helper()
	con, err := w.client.Consumer(w.t.Context(), queue, group, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { closeConsumer(con) })
	return con
}

// closeConsumer hands in what the consumer holds; there may be no server any more.
func closeConsumer(con *client.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = con.Close(ctx)
}

// take is the next delivery, or nil when none comes in time.
func (w *world) take(con *client.Consumer, within time.Duration) *client.Delivery {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			w.t.Fatal(err)
		}
		return d
	}
	return nil
}

// next is the next delivery, which has to be this message with this attempt.
func (w *world) next(con *client.Consumer, body string, attempt int) *client.Delivery {
	w.t.Helper()
	d := w.take(con, process.Patience)
	if d == nil {
		w.t.Fatalf("%q did not come within %s", body, process.Patience)
	}
	if string(d.Body) != body || d.Attempt != attempt {
		w.t.Fatalf("got %q, attempt %d; want %q, attempt %d", d.Body, d.Attempt, body, attempt)
	}
	return d
}

// none checks that nothing comes for a while.
func (w *world) none(con *client.Consumer, within time.Duration) {
	w.t.Helper()
	if d := w.take(con, within); d != nil {
		w.t.Fatalf("got %q, attempt %d; want nothing", d.Body, d.Attempt)
	}
}

// bodies acks n deliveries and returns what was in them, sorted as numbers; every attempt has to be the first.
func (w *world) bodies(con *client.Consumer, n int) []string {
	w.t.Helper()
	var out []string
	for range n {
		d := w.take(con, process.Patience)
		if d == nil {
			w.t.Fatalf("%d of %d messages came within %s", len(out), n, process.Patience)
		}
		if d.Attempt != 1 {
			w.t.Errorf("%q came with attempt %d", d.Body, d.Attempt)
		}
		w.settle(d.Ack())
		out = append(out, string(d.Body))
	}
	slices.SortFunc(out, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
	return out
}

func (w *world) settle(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// flush waits until what was settled has been sent.
func (w *world) flush(con *client.Consumer) {
	w.t.Helper()
	if err := con.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// letter is a line of `columba dlq list -o json`.
type letter struct {
	ID, Receipt, Reason, Error, Payload, Origin, Key string
	PayloadBase64                                    []byte `json:"payload_base64"`
	Attempts                                         int
	FirstEnqueued                                    string `json:"first_enqueued"`
	LastConsumer                                     string `json:"last_consumer"`
	Headers                                          map[string]string
}

// letters waits for n dead letters.
func (w *world) letters(group string, n int) []letter {
	w.t.Helper()
	var out []letter
	process.Eventually(w.t, strconv.Itoa(n)+" dead letters", func() bool {
		out = process.Decode[letter](w.t, w.server.Ask("dlq", "list", queue, group, "-o", "json"))
		return len(out) >= n
	})
	if len(out) > n {
		w.t.Fatalf("%d dead letters, want %d: %+v", len(out), n, out)
	}
	return out
}

// counted waits until the server, since it was started, has counted so many events of a group, such as "nacked": what
// consumers have sent it may still be on its way.
func (w *world) counted(group, event string, n int) {
	w.t.Helper()
	got := 0.0
	process.EventuallyOr(w.t, process.Patience, func() bool {
		got = w.server.Metric(events, `group="`+group+`"`, `event="`+event+`"`)
		return got >= float64(n)
	}, func() string {
		return fmt.Sprintf("%v messages of group %s are counted as %s, want %d", got, group, event, n)
	})
}

// crash kills the server when all that it has counted is in durable checkpoints, so that nothing of it is forgotten,
// and starts it again.
func (w *world) crash() {
	w.t.Helper()
	process.AwaitCheckpoints(w.t, w.server)
	w.server.Restart()
}

// crashing runs a test as it is, and with kill -9 and restart wherever it calls crash.
func crashing(t *testing.T, test func(w *world, crash func())) {
	t.Parallel()
	t.Run("calm", func(t *testing.T) { test(newWorld(t), func() {}) })
	t.Run("killed", func(t *testing.T) {
		w := newWorld(t)
		test(w, w.crash)
	})
}

// pause lets time pass where nothing but time is waited for.
func pause(d time.Duration) { <-time.After(d) }
