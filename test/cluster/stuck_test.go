package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// shownStuck is what `columba why-stuck -o json` prints.
type shownStuck struct {
	Reason, Text, Detail, Receipt, ID, State, Consumer, Host, Address, Owner string
	Also                                                                     []string
	Attempts                                                                 int
	AgeMs                                                                    int64  `json:"age_ms"`
	LastFailure                                                              string `json:"last_failure"`
	LastError                                                                string `json:"last_error"`
	Since, Until, Connected                                                  *time.Time
}

// stuck asks why the group does not go on, by the client and by the command, which have to agree, and to give that
// reason.
func (w *world) stuck(group, reason string) client.Stuck {
	w.t.Helper()
	why, err := w.Client.Admin().WhyStuck(w.t.Context(), queue, group)
	w.ok(err)
	var shown shownStuck
	w.json(&shown, "why-stuck", queue, group)
	if why.Reason != reason || shown.Reason != reason || why.Text == "" || shown.Text != why.Text {
		w.t.Fatalf("the reason is %s (%s), %v, %q; the command says %s. Want %s", why.Reason, why.Text, why.Also, why.Detail, shown.Reason, reason)
	}
	if !slices.Equal(why.Also, shown.Also) && len(why.Also)+len(shown.Also) > 0 {
		w.t.Errorf("further reasons are %v, the command says %v", why.Also, shown.Also)
	}
	m := why.Message
	if m == nil {
		if shown.Receipt != "" {
			w.t.Errorf("no message holds it up, the command names %s", shown.Receipt)
		}
		return why
	}
	if shown.Receipt != m.Receipt.String() || shown.State != m.State || shown.Attempts != m.Attempts || shown.LastFailure != m.LastFailure || shown.LastError != m.LastError {
		w.t.Errorf("it stands at %+v, the command says %+v", m, shown)
	}
	if h := m.Holder; h != nil && (shown.Consumer != h.Consumer || shown.Host != h.Host || shown.Address != h.Address || (shown.Since == nil) != h.Since.IsZero()) {
		w.t.Errorf("it is held by %+v, the command says %+v", h, shown)
	}
	return why
}

// receipts publishes one message after another.
func (w *world) receipts(bodies ...string) (out []client.Receipt) {
	w.t.Helper()
	p := w.publisher()
	for _, b := range bodies {
		r, err := p.Publish(w.t.Context(), client.Message{Body: []byte(b)})
		w.ok(err)
		out = append(out, r)
	}
	w.ok(p.Close(w.t.Context()))
	return out
}

// names reports whether a standing is of that message.
func names(m *client.MessageState, r client.Receipt) bool {
	return m != nil && m.Receipt == r.Receipt && m.ID == r.ID
}

func TestWhyStuck_NothingWaits(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", nil)
		w.stuck("g", "nothing_waits")
		w.publish("a")
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Ack())
		sleep(time.Second)
		if why := w.stuck("g", "nothing_waits"); why.Message != nil || why.Extents != 0 {
			t.Errorf("nothing waits, but %+v", why)
		}
		w.close(con)
	})
}

// TestWhyStuck_HeldMessage has a consumer sit on the first of many messages: it is named, with who has it, where, since
// when, until when.
func TestWhyStuck_HeldMessage(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(2000)}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Minute })
		bodies := numbers(1, 50)
		receipts := w.receipts(bodies...)
		published := time.Now()
		sleep(10 * time.Second)
		joined := time.Now()
		con := w.consumer("g")
		var held *client.Delivery
		for range bodies {
			if d := w.take(con, 10*time.Second); string(d.Body) == bodies[0] {
				held = d
			} else {
				w.ok(d.Ack())
			}
		}
		since := time.Now()
		sleep(20 * time.Second)
		check := func(attempts int, until time.Time) {
			t.Helper()
			why := w.stuck("g", "in_flight")
			m := why.Message
			if !names(m, receipts[0]) || m.State != "in_flight" || m.Attempts != attempts || why.Extents != 1 {
				t.Fatalf("held up in %d extents by %+v, want %s", why.Extents, m, receipts[0])
			}
			if age := time.Since(published); m.Age < age || m.Age > age+time.Second {
				t.Errorf("it is %s old, want %s", m.Age, age)
			}
			h := m.Holder
			if h == nil || h.Consumer != "test" || h.Host != m.Owner || !strings.HasPrefix(h.Host, "output-") || h.Address == "" || h.Session == 0 {
				t.Fatalf("held by %+v, want the client", h)
			}
			if h.Since.Before(since.Add(-time.Second)) || h.Since.After(since) || h.Connected.Before(joined) || h.Connected.After(since) {
				t.Errorf("held since %s, connected since %s; want %s and after %s", h.Since, h.Connected, since, joined)
			}
			if off := m.Until.Sub(until); off < -time.Second || off > time.Second {
				t.Errorf("locked until %s, want %s", m.Until, until)
			}
		}
		check(1, since.Add(time.Minute))
		w.ok(held.Extend(10 * time.Minute))
		w.ok(con.Flush(w.t.Context()))
		extended := time.Now()
		sleep(time.Second)
		check(1, extended.Add(10*time.Minute))
		w.ok(held.Nack(client.After(0), client.Reason("cannot")))
		w.next(con, bodies[0], 2)
		since = time.Now()
		sleep(time.Second)
		check(2, since.Add(time.Minute))
		if m := w.stuck("g", "in_flight").Message; m.LastFailure != "nack" || m.LastError != "cannot" {
			t.Errorf("the attempt before failed by %q, %q", m.LastFailure, m.LastError)
		}
		w.close(con)
		why := w.stuck("g", "in_flight")
		if h := why.Message.Holder; h == nil || h.Consumer != "test" || h.Address != "" || !slices.Contains(why.Also, "no_consumer") {
			t.Errorf("after its consumer has left it is held by %+v, and also %v", h, why.Also)
		}
	})
}

func TestWhyStuck_NoConsumer(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		r := w.receipts("a", "b")
		sleep(time.Second) // an acknowledgement is there before readers may see its message
		if m := w.stuck("g", "no_consumer").Message; !names(m, r[0]) || m.State != "unread" || m.Attempts != 0 {
			t.Errorf("held up by %+v, want %s", m, r[0])
		}
	})
}

// TestWhyStuck_NoCredit gives the first message back while the one consumer has not looked at the second, which is all
// that it has room for.
func TestWhyStuck_NoCredit(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		r := w.receipts("a", "b", "c")
		con := w.consumer("g", client.Prefetch(1))
		d := w.next(con, "a", 1)
		sleep(time.Second)
		if why := w.stuck("g", "in_flight"); !names(why.Message, r[0]) || !slices.Equal(why.Also, []string{"no_credit"}) {
			t.Errorf("held up by %+v, and also by %v", why.Message, why.Also)
		}
		w.ok(d.Nack(client.After(0)))
		w.ok(con.Flush(w.t.Context()))
		sleep(2 * time.Second)
		if m := w.stuck("g", "no_credit").Message; !names(m, r[0]) || m.State != "ready" || m.Attempts != 1 || m.LastFailure != "nack" {
			t.Errorf("held up by %+v, want %s", m, r[0])
		}
		w.close(con)
	})
}

func TestWhyStuck_DisabledGroup(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		r := w.receipts("a")
		sleep(time.Second) // an acknowledgement is there before readers may see its message
		_, err := w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "g", Status: core.StatusDisabled})
		w.ok(err)
		if why := w.stuck("g", "disabled"); !names(why.Message, r[0]) || !slices.Contains(why.Also, "no_consumer") {
			t.Errorf("held up by %+v, and also by %v", why.Message, why.Also)
		}
	})
}

func TestWhyStuck_GroupDelay(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.Delay = time.Minute })
		r := w.receipts("a")
		sleep(10 * time.Second)
		why := w.stuck("g", "group_delay")
		m := why.Message
		if left := time.Until(m.Until); !names(m, r[0]) || m.State != "delayed" || left < 49*time.Second || left > 51*time.Second || !slices.Contains(why.Also, "no_consumer") {
			t.Errorf("nobody consumes: held up by %+v for %s, also %v; want %s for 50 s", m, left, why.Also, r[0])
		}
		con := w.consumer("g")
		sleep(time.Second)
		m = w.stuck("g", "group_delay").Message
		if left := time.Until(m.Until); !names(m, r[0]) || m.State != "delayed" || left < 48*time.Second || left > 50*time.Second {
			t.Errorf("held up by %+v for %s, want %s for 49 s", m, left, r[0])
		}
		w.close(con)
	})
}

func TestWhyStuck_DelayedRetry(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		r := w.receipts("a", "b")
		w.ok(w.next(con, "a", 1).Nack(client.After(30*time.Second), client.Reason("the other side is down")))
		w.ok(w.next(con, "b", 1).Ack())
		sleep(5 * time.Second)
		m := w.stuck("g", "delayed").Message
		if left := time.Until(m.Until); !names(m, r[0]) || m.LastError != "the other side is down" || m.LastFailure != "nack" || left < 20*time.Second || left > 30*time.Second {
			t.Errorf("held up by %+v for %s, want %s for half a minute", m, left, r[0])
		}
		w.Crash(Output) // the next owner knows it from the checkpoint
		w.Up(Output)
		sleep(5 * time.Second)
		if m := w.stuck("g", "delayed").Message; m.Receipt != r[0].Receipt || m.LastError != "the other side is down" || m.Attempts != 1 {
			t.Errorf("after a crash it is held up by %+v", m)
		}
		w.close(con)
	})
}

func TestWhyStuck_BlockedMessage(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 2; g.Exhausted = core.ExhaustedBlock })
		con := w.consumer("g")
		r := w.receipts("a", "b")
		first := w.next(con, "a", 1)
		w.ok(w.next(con, "b", 1).Ack())
		w.ok(first.Nack(client.After(0)))
		w.ok(w.next(con, "a", 2).Nack(client.After(0)))
		sleep(time.Second)
		if m := w.stuck("g", "blocked").Message; !names(m, r[0]) || m.Attempts != 2 {
			t.Errorf("held up by %+v, want %s", m, r[0])
		}
		w.close(con)
	})
}

// TestWhyStuck_DeadLetterQueueNotWritable takes the input host away, so that nothing can be appended.
func TestWhyStuck_DeadLetterQueueNotWritable(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		r := w.receipts("a")
		w.Crash(Input)
		w.ok(w.next(con, "a", 1).Reject("bad"))
		sleep(30 * time.Second)
		if why := w.stuck("g", "dlq_not_writable"); !names(why.Message, r[0]) || why.Message.State != "dead_lettering" || why.Detail == "" {
			t.Errorf("held up by %+v, %q; want %s", why.Message, why.Detail, r[0])
		}
		w.Up(Input)
		w.eventually("nothing waits", time.Minute, func() bool {
			why, err := w.Client.Admin().WhyStuck(w.t.Context(), queue, "g")
			return err == nil && why.Reason == "nothing_waits"
		})
		w.close(con)
	})
}

// TestWhyStuck_NoReadableReplica takes the stores of a sealed extent away, and of an open one.
func TestWhyStuck_NoReadableReplica(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		w.group("g", nil)
		r := w.receipts("a")
		w.Crash(Store(0), Store(1))
		sleep(5 * time.Second)
		why := w.stuck("g", "no_readable_replica")
		if why.Message == nil || why.Message.Receipt != r[0].Receipt || why.Detail == "" {
			t.Errorf("an open extent: held up by %+v, %q; want %s", why.Message, why.Detail, r[0])
		}
		w.Up(Store(0), Store(1))
		sleep(2 * time.Minute) // sealed
		w.Crash(Store(0), Store(1))
		con := w.consumer("g")
		sleep(5 * time.Second)
		why = w.stuck("g", "no_readable_replica")
		if why.Message == nil || why.Message.Receipt != r[0].Receipt || why.Detail == "" {
			t.Errorf("a sealed extent: held up by %+v, %q; want %s", why.Message, why.Detail, r[0])
		}
		w.close(con)
	})
}

// TestWhyStuck_NoOwner takes all output hosts away, after a message was delayed: the checkpoint knows it.
func TestWhyStuck_NoOwner(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		r := w.receipts("a", "b")
		w.ok(w.next(con, "a", 1).Nack(client.After(30 * time.Second)))
		w.ok(w.next(con, "b", 1).Ack())
		w.ok(con.Flush(w.t.Context()))
		sleep(5 * time.Second)
		w.close(con)
		w.Crash(OutputOf(0), OutputOf(1))
		if m := w.stuck("g", "no_owner").Message; m == nil || m.Receipt != r[0].Receipt || m.State != "delayed" || m.Attempts != 1 || m.Owner != "" {
			t.Errorf("held up by %+v, want %s", m, r[0])
		}
	})
}

// TestWhyStuck_OwnerIsSilent has the owner's process stand still.
func TestWhyStuck_OwnerIsSilent(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		w.eventually("its extent has an owner", 10*time.Second, func() bool {
			why, err := w.Client.Admin().WhyStuck(w.t.Context(), queue, "g")
			return err == nil && why.Reason == "no_consumer"
		})
		release := w.Hold(Output)
		if why := w.stuck("g", "owner_unreachable"); !strings.Contains(why.Detail, string(Output)) {
			t.Errorf("it says %q, and not who is silent", why.Detail)
		}
		release()
	})
}

// TestWhyStuck_OutstandingLimit has a consumer settle all but the first of as many messages as may be outstanding, and
// hold the rest.
func TestWhyStuck_OutstandingLimit(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Hour })
		p := w.publisher()
		const n = 11_000
		for range n {
			w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: []byte("x")}, nil))
		}
		w.ok(p.Close(w.t.Context()))
		con := w.consumer("g", client.Prefetch(20_000))
		sleep(10 * time.Second)
		why := w.stuck("g", "outstanding_limit")
		if m := why.Message; m == nil || m.Receipt.Seq != 1 || m.Holder == nil || m.Holder.Consumer != "test" || !slices.Equal(why.Also, []string{"in_flight"}) {
			t.Errorf("held up by %+v, also %v", m, why.Also)
		}
		w.close(con)
	})
}

// TestWhyStuck_CheckpointsCannotBeSaved keeps the count of a second attempt from becoming durable.
func TestWhyStuck_CheckpointsCannotBeSaved(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		var s saves
		w.OnMeta(Output, s.gate)
		r := w.receipts("a")
		d := w.next(con, "a", 1)
		s.fail.Store(true)
		w.ok(d.Nack(client.After(0)))
		sleep(5 * time.Second)
		if why := w.stuck("g", "checkpoint_not_saved"); !names(why.Message, r[0]) || why.Message.State != "ready" || !strings.Contains(why.Detail, errInjected.Error()) {
			t.Errorf("held up by %+v, %q; want %s", why.Message, why.Detail, r[0])
		}
		s.fail.Store(false)
		w.ok(w.next(con, "a", 2).Ack())
		w.close(con)
	})
}

// TestWhyStuck_LastAttemptFailed: nothing holds a last attempt back; once it failed, too, the message waits a few
// seconds for anything to succeed, and why-stuck says that it is on its way to the dead letters.
func TestWhyStuck_LastAttemptFailed(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries, g.NoNackThrottle = 2, true })
		con := w.consumer("g")
		r := w.receipts("a")[0]
		w.ok(w.next(con, "a", 1).Nack())
		w.ok(w.next(con, "a", 2).Nack())
		sleep(2 * time.Second)
		if why := w.stuck("g", "dead_lettering"); !names(why.Message, r) || why.Message.Attempts != 2 {
			t.Errorf("it stands at %+v, want %s", why.Message, r)
		}
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d dead letters, although something may succeed yet", n)
		}
		w.eventually("it is a dead letter", 10*time.Second, func() bool { return w.letters("g") == 1 })
		w.close(con)
	})
}
