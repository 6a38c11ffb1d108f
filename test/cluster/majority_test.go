package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// statesOf are the states of the controllers in a list of hosts.
func (w *world) statesOf(c *client.Client) map[core.HostID]string {
	w.t.Helper()
	hosts, err := c.Admin().ListHosts(w.t.Context())
	w.ok(err)
	out := make(map[core.HostID]string)
	for _, h := range hosts {
		if slices.Contains(h.Roles, "controller") {
			out[h.Host] = h.State
		}
	}
	return out
}

// become waits until the controllers have these states.
func (w *world) become(c *client.Client, within time.Duration, want map[core.HostID]string) {
	w.t.Helper()
	for began := time.Now(); ; sleep(200 * time.Millisecond) {
		got, ok := w.statesOf(c), true
		for id, state := range want {
			ok = ok && got[id] == state
		}
		if ok {
			w.t.Logf("%s after %s", got[ControllerOf(0)], time.Since(began))
			return
		}
		if time.Since(began) > within {
			w.t.Fatalf("after %s the controllers are %q, want %q", within, got, want)
		}
	}
}

// why asks for the reasons of the group g, and finds that one of the metadata's is among them, or none for "".
func (w *world) why(c *client.Client, reason string, details ...string) {
	w.t.Helper()
	s, err := c.Admin().WhyStuck(w.t.Context(), queue, "g")
	w.ok(err)
	var found []string
	for _, r := range append([]string{s.Reason}, s.Also...) {
		if strings.HasPrefix(r, "metadata_") {
			found = append(found, r)
		}
	}
	if got := strings.Join(found, " "); got != reason {
		w.t.Errorf("why-stuck says %q, want %q: %+v", got, reason, s)
	}
	for _, d := range details {
		if !strings.Contains(s.Detail, d) {
			w.t.Errorf("the detail is %q, want %q in it", s.Detail, d)
		}
	}
}

// said counts the lines that hosts have logged with a text.
func (w *world) said(text string) int { return strings.Count(w.log.text(), text) }

const outage = "no majority: outage of the metadata"

func refuse(context.Context, Op) error {
	return core.Errorf(core.CodeUnavailable, "injected: no majority")
}

func everyController(state string) map[core.HostID]string {
	return map[core.HostID]string{ControllerOf(0): state, ControllerOf(1): state, ControllerOf(2): state}
}

// TestCut_IsNamed: on the side without a majority list hosts and why-stuck say that the network is cut, and from whom,
// until it is healed. The other side says nothing of the kind.
func TestCut_IsNamed(t *testing.T) {
	halved(t, 1, func(h *halves) {
		h.group("g", nil)
		sleep(10 * time.Second)
		h.publishOn(h.Client, queue, bodiesOf("before", 5))
		h.why(h.far, "")
		heal := h.divide(h.farSide, []string{farPort}, 3*time.Second)
		h.become(h.far, 6*time.Second, map[core.HostID]string{ControllerOf(2): "no majority: cut off from controller-0, controller-1"})
		for range 20 { // membership loses the others meanwhile
			h.why(h.far, "metadata_cut", "controller-2 says", "cut off from controller-0, controller-1")
			sleep(time.Second)
		}
		h.become(h.Client, 6*time.Second, map[core.HostID]string{ControllerOf(0): "up", ControllerOf(1): "up"})
		h.why(h.Client, "")
		sleep(10 * time.Minute)
		h.become(h.far, 0, map[core.HostID]string{ControllerOf(2): "no majority: cut off from controller-0, controller-1"})
		heal()
		h.become(h.far, 10*time.Second, everyController("up"))
		h.why(h.far, "")
		if n, back := h.said("and the network is cut"), h.said("a majority of the metadata answers again"); n != 1 || back != 1 {
			h.t.Errorf("a controller logged %d times that the network is cut, and %d times that a majority answers again", n, back)
		}
	})
}

// TestOutage_IsNamed: controllers without a majority that reach each other are in an outage. When one of them is not
// reached, or has a majority, the others are cut off.
func TestOutage_IsNamed(t *testing.T) {
	o := Options{Controllers: 3, Stores: 3, Outputs: 2, Replicas: 3}
	bubbleOf(t, o, core.QueueSpec{Path: queue, Replicas: 3, MinReplicas: 1}, func(w *world) {
		w.group("g", nil)
		sleep(10 * time.Second)
		w.publish("one")
		controllers := []core.HostID{ControllerOf(0), ControllerOf(1), ControllerOf(2)}
		for _, id := range controllers {
			w.OnMeta(id, refuse)
		}
		w.become(w.Client, 6*time.Second, everyController(outage))
		w.why(w.Client, "metadata_outage", outage)
		sleep(time.Minute)
		w.why(w.Client, "metadata_outage", outage)
		if cut, out := w.said("and the network is cut"), w.said("this is an outage"); cut != 0 || out != 3 {
			w.t.Errorf("controllers logged %d times that the network is cut, and %d times that there is an outage", cut, out)
		}

		for _, id := range w.All() {
			w.OnMeta(id, refuse)
		}
		sleep(3 * time.Second)
		if _, err := w.Client.Admin().WhyStuck(w.t.Context(), queue, "g"); core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), outage) {
			w.t.Errorf("without all of the metadata why-stuck says %v", err)
		}
		for _, id := range w.All() {
			if !slices.Contains(controllers, id) {
				w.OnMeta(id, nil)
			}
		}

		release := w.Hold(ControllerOf(1))
		silent := "no majority: cut off from controller-1"
		w.become(w.Client, 8*time.Second, map[core.HostID]string{ControllerOf(0): silent, ControllerOf(2): silent})
		w.why(w.Client, "metadata_cut", silent)
		release()
		w.become(w.Client, 8*time.Second, everyController(outage))

		w.OnMeta(ControllerOf(2), nil)
		unlike := "no majority: cut off from the metadata, unlike controller-2"
		w.become(w.Client, 8*time.Second, map[core.HostID]string{ControllerOf(0): unlike, ControllerOf(1): unlike, ControllerOf(2): "up"})
		w.why(w.Client, "")
		for _, id := range controllers {
			w.OnMeta(id, nil)
		}
		w.become(w.Client, 5*time.Second, everyController("up"))
		w.why(w.Client, "")
	})
}

// TestOutage_OfDeadControllers: one that was killed, or has left, does not make a cut of an outage.
func TestOutage_OfDeadControllers(t *testing.T) {
	bubbleOf(t, Options{Controllers: 3}, core.QueueSpec{Path: queue}, func(w *world) {
		sleep(10 * time.Second)
		for _, id := range w.All() {
			w.OnMeta(id, refuse)
		}
		w.Crash(ControllerOf(1))
		w.become(w.Client, 6*time.Second, map[core.HostID]string{ControllerOf(0): outage, ControllerOf(2): outage})
		w.eachDown([]core.HostID{ControllerOf(2)}, (*host).stop)
		sleep(5 * time.Second)
		w.become(w.Client, 0, map[core.HostID]string{ControllerOf(0): outage})
		for _, id := range w.All() {
			if w.hosts[id].meta != nil {
				w.OnMeta(id, nil)
			}
		}
		w.Up(ControllerOf(1), ControllerOf(2))
		w.become(w.Client, 5*time.Second, everyController("up"))
	})
}
