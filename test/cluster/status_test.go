package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// soon is "within seconds".
const soon = 4 * time.Second

func (w *world) setQueue(s core.Status) {
	w.t.Helper()
	_, err := w.Client.Admin().UpdateQueue(w.t.Context(), core.QueueSpec{Path: queue, Status: s})
	w.ok(err)
}

func (w *world) setGroup(name string, s core.Status) {
	w.t.Helper()
	_, err := w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: name, Status: s})
	w.ok(err)
}

// told is the error that a consumer yields within a few seconds.
func (w *world) told(c *client.Consumer) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	for d, err := range c.Deliveries(ctx) {
		if err != nil {
			return err
		}
		w.ok(d.Ack())
	}
	return nil
}

// TestCluster_QueueStatusReachesConnections goes through all of a queue's states with one publisher and one consumer,
// which stay connected.
func TestCluster_QueueStatusReachesConnections(t *testing.T) {
	for _, consistency := range []core.Consistency{core.AP, core.CP} {
		t.Run(string(consistency), func(t *testing.T) {
			bubble(t, Options{Stores: 2, Inputs: 2, Outputs: 2}, func(w *world) {
				if consistency == core.CP {
					w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
					_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue, Consistency: core.CP})
					w.ok(err)
				}
				w.group("g", nil)
				pub, con := w.publisher(), w.consumer("g")
				pending := make(map[string]bool)
				for i, step := range []struct {
					status           core.Status
					publish, consume bool
				}{
					{core.StatusReceiveOnly, false, true}, {core.StatusEnabled, true, true}, {core.StatusSendOnly, true, false},
					{core.StatusDisabled, false, false}, {core.StatusSendOnly, true, false}, {core.StatusReceiveOnly, false, true}, {core.StatusEnabled, true, true},
				} {
					w.setQueue(step.status)
					sleep(soon)
					body := fmt.Sprint(i)
					_, err := pub.Publish(w.t.Context(), client.Message{Body: []byte(body)})
					if step.publish && err != nil || !step.publish && !errors.Is(err, client.ErrDisabled) {
						t.Errorf("%s: publish: %v", step.status, err)
					}
					pending[body] = err == nil
					if !step.consume {
						if d := w.takeUnlessPaused(con, time.Second); d != nil {
							t.Errorf("%s: %s was delivered", step.status, d.Body)
						}
						continue
					}
					for d := w.takeUnlessPaused(con, time.Second); d != nil; d = w.takeUnlessPaused(con, time.Second) {
						if !pending[string(d.Body)] {
							t.Errorf("%s: %s was delivered, and was not published", step.status, d.Body)
						}
						delete(pending, string(d.Body))
						w.ok(d.Ack())
					}
					for body, published := range pending {
						if published {
							t.Errorf("%s: %s was not delivered", step.status, body)
						}
					}
				}
				w.close(con)
				w.ok(pub.Close(w.t.Context()))
			})
		})
	}
}

// takeUnlessPaused is take, but for the error of a pause.
func (w *world) takeUnlessPaused(c *client.Consumer, patience time.Duration) *client.Delivery {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for d, err := range c.Deliveries(ctx) {
		if err != nil && !errors.Is(err, client.ErrDisabled) {
			w.t.Fatal(err)
		}
		if err == nil {
			return d
		}
	}
	return nil
}

// TestCluster_DisabledGroupPausesItsConsumers has a consumer hold some of a backlog when its group is disabled: it gets
// no more, is told why, settles what it holds, and goes on when the group is enabled again, over the restart of its
// host too. Another group goes on meanwhile.
func TestCluster_DisabledGroupPausesItsConsumers(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", nil)
		w.group("other", nil)
		con, other := w.consumer("g", client.Prefetch(50)), w.consumer("other")
		want := numbers(1, 200)
		w.publish(want...)
		got := make(map[string]int)
		var held []*client.Delivery
		for range 10 {
			d := w.take(con, 10*time.Second)
			got[string(d.Body)]++
			held = append(held, d)
		}
		w.setGroup("g", core.StatusDisabled)
		sleep(soon)
		err := w.told(con)
		if !errors.Is(err, client.ErrDisabled) {
			t.Errorf("the consumer was told %v, want disabled", err)
		}
		if _, err := w.Client.Consumer(w.t.Context(), queue, "g"); !errors.Is(err, client.ErrDisabled) {
			t.Errorf("another consumer: %v, want disabled", err)
		}
		for _, d := range held {
			w.ok(d.Ack())
		}
		w.all(w.collect(other, len(want)), want, true)
		w.Restart(OutputOf(0), OutputOf(1))
		if d := w.takeUnlessPaused(con, 2*time.Minute); d != nil { // longer than the locks
			t.Errorf("%s was delivered to a disabled group", d.Body)
		}
		w.setGroup("g", core.StatusEnabled)
		began := time.Now()
		for len(got) < len(want) {
			d := w.takeUnlessPaused(con, 10*time.Second)
			if d == nil {
				t.Fatalf("%d of %d came after the group was enabled again", len(got), len(want))
			}
			if len(got) == len(held) && time.Since(began) > soon {
				t.Errorf("the first came %s after the group was enabled again", time.Since(began))
			}
			got[string(d.Body)]++
			w.ok(d.Ack())
		}
		w.all(got, want, true)
		w.close(con)
		w.close(other)
	})
}

// TestCluster_DisabledGroupRefusesPulls disables a group under a long poll, and enables it.
func TestCluster_DisabledGroupRefusesPulls(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		p := w.peers()
		defer p.Close()
		pull := func() (*pb.PullResponse, error) {
			r, err := p.Output(w.hosts[Output].addr).Pull(w.t.Context(), connect.NewRequest(&pb.PullRequest{Queue: queue, Group: "g", MaxMessages: 10, Wait: durationpb.New(time.Minute)}))
			if err != nil {
				return nil, convert.FromRPC(err)
			}
			return r.Msg, nil
		}
		for _, disable := range []func(core.Status){w.setQueue, func(s core.Status) { w.setGroup("g", s) }} {
			var done atomic.Bool
			w.later(time.Second, func() {
				began := time.Now()
				if _, err := pull(); !errors.Is(err, client.ErrDisabled) || time.Since(began) > soon+time.Second {
					t.Errorf("a long poll of a group that was disabled ended with %v after %s", err, time.Since(began))
				}
				done.Store(true)
			})
			sleep(2 * time.Second)
			disable(core.StatusDisabled)
			w.eventually("the pull has ended", time.Minute, done.Load)
			if _, err := pull(); !errors.Is(err, client.ErrDisabled) {
				t.Errorf("a pull of a disabled group: %v", err)
			}
			disable(core.StatusEnabled)
			w.publish("a")
			m, err := pull()
			if err != nil || len(m.Messages) != 1 {
				t.Errorf("a pull after it was enabled again: %v, %v", m, err)
			}
		}
	})
}

// TestCluster_WorkWaitsWhileItsGroupIsDisabled has Work go on by itself.
func TestCluster_WorkWaitsWhileItsGroupIsDisabled(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		ctx, stop := context.WithCancel(w.t.Context())
		var handled atomic.Int64
		ended := make(chan error, 1)
		w.later(0, func() {
			ended <- w.Client.Work(ctx, queue, "g", func(context.Context, *client.Delivery) error { handled.Add(1); return nil }, client.Concurrency(4))
		})
		w.publish("a")
		w.eventually("a is handled", soon, func() bool { return handled.Load() == 1 })
		w.setGroup("g", core.StatusDisabled)
		sleep(soon)
		w.publish("b")
		sleep(time.Minute)
		if n := handled.Load(); n != 1 {
			t.Errorf("%d messages were handled while the group was disabled", n-1)
		}
		w.setGroup("g", core.StatusEnabled)
		w.eventually("b is handled", soon, func() bool { return handled.Load() == 2 })
		stop()
		w.ok(<-ended)
	})
}

// TestCluster_QueueMadeAgainIsAFreshOne deletes a queue under its publisher and its consumer and makes one under the
// same path: nothing of the old one is in it, and who used the old one does not mix the two.
func TestCluster_QueueMadeAgainIsAFreshOne(t *testing.T) {
	for name, pause := range map[string]time.Duration{"at once": 0, "later": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{Stores: 2}, func(w *world) {
				w.group("g", nil)
				pub, con := w.publisher(), w.consumer("g", client.Prefetch(10))
				old := numbers(1, 100)
				w.publish(old...)
				held := w.next(con, old[0], 1)
				release := w.Hold(Store(1)) // what is published now stays without an answer
				var unanswered atomic.Pointer[error]
				w.ok(pub.PublishAsync(w.t.Context(), client.Message{Body: []byte("under way")}, func(_ client.Receipt, err error) { unanswered.Store(&err) }))
				sleep(100 * time.Millisecond)
				w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
				sleep(pause)
				_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue})
				w.ok(err)
				w.group("g", nil)
				sleep(soon)
				release()
				if err := w.told(con); core.CodeOf(err) != core.CodeNotFound {
					t.Errorf("the consumer of the old queue was told %v, want not found", err)
				}
				if err := held.Ack(); err == nil {
					t.Log("an ack of the old queue's message was taken on its way") // it settles nothing of the new one
				}
				_, err = pub.Publish(w.t.Context(), client.Message{Body: []byte("new")})
				w.ok(err)
				fresh := w.consumer("g")
				w.ok(w.next(fresh, "new", 1).Ack())
				if d := w.take(fresh, time.Minute); d != nil {
					t.Errorf("%q of the old queue is in the new one", d.Body)
				}
				w.eventually("the message under way has its outcome", time.Minute, func() bool { return unanswered.Load() != nil })
				w.close(con)
				w.close(fresh)
				w.ok(pub.Close(w.t.Context()))
				w.eventually("the old extents are removed", 2*time.Minute, func() bool {
					n := 0
					for _, k := range w.extents(queue) {
						n += k
					}
					return w.replicas() <= 2*n
				})
			})
		})
	}
}
