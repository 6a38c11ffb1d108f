package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// standstill is a line of `columba why-stuck -o json`.
type standstill struct {
	Reason, Text, Detail, Receipt, ID, State, Consumer, Host, Address string
	Also                                                              []string
	Attempts                                                          int
	AgeMs                                                             int64  `json:"age_ms"`
	LastFailure                                                       string `json:"last_failure"`
	LastError                                                         string `json:"last_error"`
	Since, Until                                                      *time.Time
}

// TestWhyStuckNamesTheMessage stages what holds groups up, with real processes: why-stuck names the message, its age,
// and who has it.
func TestWhyStuckNamesTheMessage(t *testing.T) {
	byCommands(t)
	waits(t)
	c := process.StartCluster(t, process.Layout{Stores: 1, Inputs: 1, Outputs: 1})
	s := c.Controller
	s.Must("", "create", "queue", queue, "--replicas", "1", "--min-replicas", "1")
	for group, flags := range map[string][]string{
		"nobody": nil, "hangs": {"--lock-timeout", "10m"}, "waits": nil, "paused": nil, "dying": nil,
		"blocked": {"--max-deliveries", "1", "--exhausted", "block"},
	} {
		s.Must("", append([]string{"create", "group", queue, group, "--start", "earliest"}, flags...)...)
	}
	type published struct{ ID, Receipt string }
	began := time.Now()
	p := process.Decode[published](t, s.Must("first\n", "publish", queue, "-o", "json"))[0]
	s.Must(lines(20), "publish", queue) // all of them wait behind, and nobody is to name them
	first := func(group string) string {
		t.Helper()
		m := process.Decode[struct{ Payload, Token string }](t, s.Must("", "consume", queue, group, "--count", "1", "--ack", "tokens", "-o", "json"))[0]
		if m.Payload != "first" {
			t.Fatalf("group %s got %q", group, m.Payload)
		}
		return m.Token
	}
	// says waits until the reason is that, looking now and then: each look is a process.
	says := func(group, reason string, holds func(w standstill) bool) {
		t.Helper()
		var w standstill
		for end := time.Now().Add(process.Patience); w.Reason != reason; <-time.After(500 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("group %s: %+v, want %s", group, w, reason)
			}
			w = process.Decode[standstill](t, s.Ask("why-stuck", queue, group, "-o", "json"))[0]
		}
		if age := time.Duration(w.AgeMs) * time.Millisecond; w.Receipt != p.Receipt || w.ID != p.ID || w.Text == "" || age <= 0 || age > time.Since(began)+time.Second {
			t.Errorf("group %s: it names %s (%s), %s old: %q; want %s", group, w.Receipt, w.ID, age, w.Text, p.Receipt)
		}
		if !holds(w) {
			t.Errorf("group %s: %+v", group, w)
		}
	}

	got := make(chan struct{}, 1)
	holder := s.Launch(nil, func([]byte) {
		select {
		case got <- struct{}{}:
		default:
		}
	}, "consume", queue, "hangs", "--ack", "none")
	select {
	case <-got:
	case <-time.After(process.Patience):
		t.Fatal("the consumer that is to hang got nothing")
	}
	holder.Pause() // half-open: its connection stays
	says("hangs", "in_flight", func(w standstill) bool {
		return w.State == "in_flight" && w.Attempts == 1 && w.Consumer != "" && w.Host != "" && w.Address != "" && w.Since != nil && w.Until != nil && time.Until(*w.Until) > 8*time.Minute
	})

	token := first("waits")
	s.Must("", "nack", token, "--delay", "29s", "--reason", "upstream is down")
	says("waits", "delayed", func(w standstill) bool {
		return w.Attempts == 1 && w.LastFailure == "nack" && w.LastError == "upstream is down" && w.Until != nil && time.Until(*w.Until) > 0
	})

	s.Must("", "update", "group", queue, "paused", "--status", "disabled")
	says("paused", "disabled", func(w standstill) bool { return w.Attempts == 0 })

	s.Must("", "nack", first("blocked"), "--reason", "no such trip")
	says("blocked", "blocked", func(w standstill) bool { return w.Attempts == 1 && w.LastError == "no such trip" })

	says("nobody", "no_consumer", func(w standstill) bool { return w.Attempts == 0 && w.Consumer == "" })

	token = first("dying")
	c.Inputs[0].Kill()
	s.Must("", "reject", token, "--reason", "bad")
	says("dying", "dlq_not_writable", func(w standstill) bool { return w.Attempts == 1 && w.Detail != "" })
	if out := s.Ask("why-stuck", queue, "dying"); !strings.Contains(out, p.Receipt) {
		t.Errorf("the table does not name the message:\n%s", out)
	}
}
