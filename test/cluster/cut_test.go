package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata/faulty"
)

// halves is a cluster that can be cut in two: everything but most of the metadata is on both sides.
type halves struct {
	*world
	far     *client.Client // of the minority
	farSide []core.HostID
	wg      sync.WaitGroup
	mu      sync.Mutex
	got     map[string]int                  // deliveries that were acked, by body
	on      map[string]map[string]time.Time // by side, when a body came first
}

const farPort = "client-far"

func halved(t *testing.T, seed uint64, f func(h *halves)) {
	o := Options{
		Controllers: 3, Stores: 3, Inputs: 2, Outputs: 2, Frontends: 2, Replicas: 3, Divergence: &faulty.Divergence{Seed: seed},
	}
	bubbleOf(t, o, core.QueueSpec{Path: queue, Replicas: 3, MinReplicas: 1}, func(w *world) {
		t := w.t
		h := &halves{
			world: w, farSide: []core.HostID{ControllerOf(2), Store(2), InputOf(1), OutputOf(1), FrontendOf(1)},
			got: make(map[string]int), on: map[string]map[string]time.Time{"near": {}, "far": {}},
		}
		var err error
		h.far, err = w.dialBy(w.net.attach(farPort), FrontendOf(1))
		w.ok(err)
		defer func() {
			if err := h.far.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(h)
	})
}

// consume acks what comes on a side until the test ends the context.
func (h *halves) consume(ctx context.Context, c *client.Client, side, path, group string) {
	h.wg.Go(func() {
		for ctx.Err() == nil {
			con, err := c.Consumer(ctx, path, group)
			if err != nil {
				sleep(200 * time.Millisecond)
				continue
			}
			for d, err := range con.Deliveries(ctx) {
				if err != nil {
					break
				}
				body := string(d.Body)
				h.mu.Lock()
				h.got[body]++
				if _, before := h.on[side][body]; !before {
					h.on[side][body] = time.Now()
				}
				h.mu.Unlock()
				d.Ack()
			}
			con.Close(context.WithoutCancel(ctx))
		}
	})
}

// publishOn publishes bodies one after another, each until it is acknowledged, and answers how long the slowest took.
func (h *halves) publishOn(c *client.Client, path string, bodies []string) (most time.Duration) {
	h.t.Helper()
	var p *client.Publisher
	for began := time.Now(); p == nil; sleep(100 * time.Millisecond) {
		var err error
		if p, err = c.Publisher(h.t.Context(), path); err != nil && time.Since(began) > time.Minute {
			h.t.Error(err)
			return 0
		}
	}
	for _, b := range bodies {
		began := time.Now()
		for {
			_, err := p.Publish(h.t.Context(), client.Message{Body: []byte(b)})
			if err == nil {
				break
			}
			if time.Since(began) > time.Minute {
				h.t.Errorf("publish %s: %v", b, err)
				break
			}
			sleep(100 * time.Millisecond)
		}
		most = max(most, time.Since(began))
		sleep(50 * time.Millisecond)
	}
	if err := p.Close(h.t.Context()); err != nil {
		h.t.Error(err)
	}
	return most
}

func bodiesOf(name string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%03d", name, i))
	}
	return out
}

// missing are the bodies that have not come on a side; "": on any.
func (h *halves) missing(side string, bodies []string) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range bodies {
		_, came := h.on[side][b]
		if side == "" {
			came = h.got[b] > 0
		}
		if !came {
			out = append(out, b)
		}
	}
	return out
}

func (h *halves) come(side string, bodies []string, within time.Duration) {
	h.t.Helper()
	for began := time.Now(); ; sleep(100 * time.Millisecond) {
		left := h.missing(side, bodies)
		if len(left) == 0 {
			h.t.Logf("%s: %d came after %s", side, len(bodies), time.Since(began))
			return
		}
		if time.Since(began) > within {
			h.t.Errorf("%d of %d have not come on side %q within %s: %v", len(left), len(bodies), side, within, left[:min(len(left), 5)])
			return
		}
	}
}

// TestCut_BothSidesOfAnAPQueueGoOn: publishes are acknowledged on both sides of a cut, consumers of each side get what
// is published there, and all reach the group after the heal.
func TestCut_BothSidesOfAnAPQueueGoOn(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			underrace.One(t, seed == 0)
			halved(t, seed, func(h *halves) {
				h.group("g", func(s *core.GroupSpec) { s.LockTimeout = 10 * time.Second }) // consumers of the other side count as there for 45 s
				ctx, cancel := context.WithCancel(h.t.Context())
				defer h.wg.Wait()
				defer cancel()
				h.consume(ctx, h.Client, "near", queue, "g")
				h.consume(ctx, h.far, "far", queue, "g")
				sleep(10 * time.Second)
				before := bodiesOf("before", 50)
				h.publishOn(h.Client, queue, before)
				h.come("", before, 30*time.Second)
				sleep(5 * time.Second)
				heal := h.divide(h.farSide, []string{farPort}, 3*time.Second)
				near, far := bodiesOf("near", 100), bodiesOf("far", 100)
				var both sync.WaitGroup
				both.Go(func() { h.t.Logf("near: the slowest publish took %s", h.publishOn(h.Client, queue, near)) })
				both.Go(func() { h.t.Logf("far: the slowest publish took %s", h.publishOn(h.far, queue, far)) })
				both.Wait()
				h.come("near", near, time.Minute)
				h.come("far", far, time.Minute)
				sleep(10 * time.Second)
				heal()
				after := bodiesOf("after", 50)
				h.publishOn(h.Client, queue, after)
				h.publishOn(h.far, queue, bodiesOf("late", 20))
				h.come("", append(after, bodiesOf("late", 20)...), time.Minute)
				sleep(time.Minute)
				h.repeated(20)
			})
		})
	}
}

// TestCut_MessagesOfTheMinorityReachTheGroupAfterTheHeal: nobody consumes on that side.
func TestCut_MessagesOfTheMinorityReachTheGroupAfterTheHeal(t *testing.T) {
	halved(t, 1, func(h *halves) {
		h.group("g", nil)
		ctx, cancel := context.WithCancel(h.t.Context())
		defer h.wg.Wait()
		defer cancel()
		h.consume(ctx, h.Client, "near", queue, "g")
		sleep(10 * time.Second)
		heal := h.divide(h.farSide, []string{farPort}, 3*time.Second)
		sleep(time.Minute) // connections from one side to the other are given up
		far := bodiesOf("far", 100)
		h.publishOn(h.far, queue, far)
		sleep(20 * time.Second)
		if n := len(h.missing("near", far)); n != len(far) {
			h.t.Errorf("%d messages came through the cut", len(far)-n)
		}
		heal()
		h.come("near", far, time.Minute)
		sleep(time.Minute)
		h.repeated(0)
	})
}

// TestCut_CPQueueIsPublishedToByTheMajority: the other side refuses new publishes, says why, and takes them after the
// heal.
func TestCut_CPQueueIsPublishedToByTheMajority(t *testing.T) {
	const ordered = "/t/ordered"
	halved(t, 1, func(h *halves) {
		_, err := h.Client.Admin().CreateQueue(h.t.Context(), core.QueueSpec{Path: ordered, Replicas: 3, MinReplicas: 1, Consistency: core.CP})
		h.ok(err)
		_, err = h.Client.Admin().CreateGroup(h.t.Context(), core.GroupSpec{Queue: ordered, Name: "g", LockTimeout: 10 * time.Second, Start: core.Start{Mode: core.StartEarliest}})
		h.ok(err)
		ctx, cancel := context.WithCancel(h.t.Context())
		defer h.wg.Wait()
		defer cancel()
		h.consume(ctx, h.Client, "near", ordered, "g")
		h.consume(ctx, h.far, "far", ordered, "g")
		sleep(10 * time.Second)
		before := bodiesOf("before", 20)
		h.publishOn(h.Client, ordered, before)
		h.come("", before, 30*time.Second)
		heal := h.divide(h.farSide, []string{farPort}, 3*time.Second)
		sleep(time.Minute) // the head may have its input host here, which waits for stores of the other side
		near := bodiesOf("near", 20)
		h.publishOn(h.Client, ordered, near)
		h.come("near", near, time.Minute)
		for range 3 {
			began := time.Now()
			p, err := h.far.Publisher(h.t.Context(), ordered)
			if err == nil {
				_, err = p.Publish(h.t.Context(), client.Message{Body: []byte("refused")})
				h.ok(p.Close(h.t.Context()))
			}
			if core.CodeOf(err) != core.CodeNoMajority || !strings.Contains(err.Error(), "no majority here (cut off from controller-0, controller-1)") {
				h.t.Errorf("a publish on the side without a majority: %v", err)
			}
			if took := time.Since(began); took > 4*time.Second { // the last question to a controller may take a second
				h.t.Errorf("it took %s", took)
			}
		}
		heal()
		late := bodiesOf("late", 20)
		h.publishOn(h.far, ordered, late)
		h.come("", late, time.Minute)
	})
}

// repeated allows so many messages to have come more than once.
func (h *halves) repeated(most int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var again []string
	for b, n := range h.got {
		if n > 1 {
			again = append(again, fmt.Sprint(b, ":", n))
		}
	}
	if h.t.Logf("%d of %d messages came more than once", len(again), len(h.got)); len(again) > most {
		h.t.Errorf("want %d at most: %s", most, strings.Join(again, " "))
	}
}
