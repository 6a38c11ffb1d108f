package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

func someDelivery(body string) *client.Delivery {
	return &client.Delivery{
		Body: []byte(body), ID: contentID([]byte("id")), Attempt: 2, Enqueued: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC),
		Receipt: core.Receipt{Extent: core.ExtentID{ID: core.ID{0x01, 0x89}}, Seq: 9}, Token: "tok",
	}
}

func TestConsume_Lines(t *testing.T) {
	const extent = "01890000-0000-0000-0000-000000000000"
	for _, c := range []struct{ name, format, ack, body, want string }{
		{"on a screen", formatTable, "", "a\tb\nü \x1b[2J\u009b2J\u202e\U000e0041\xff\x9b2J\ufffd\x7f", `a	b
ü \u001b[2J\u009b2J\u202e\ue0041\xff\x9b2J` + "\ufffd" + `\u007f` + "\n"},
		{"plain", formatTable, ackAuto, "a b", "a b\n"},
		{"empty", formatTable, ackAuto, "", "\n"},
		{"binary", formatTable, ackAuto, "\xff\x00", "\xff\x00\n"},
		{"token", formatTable, ackTokens, "a", "tok\ta\n"},
		{"json", formatJSON, ackAuto, `a"<b>`, `{"id":"ID","receipt":"` + extent + `:9","payload":"a\"<b>","extent":"` + extent + `","seq":9,"enqueued":"2026-01-02T03:04:05.678Z","attempt":2,"key":"","headers":{},"metadata":"","token":"tok"}` + "\n"},
		{"json of binary", formatJSON, ackAuto, "\xff", `{"id":"ID","receipt":"` + extent + `:9","payload_base64":"/w==","extent":"` + extent + `","seq":9,"enqueued":"2026-01-02T03:04:05.678Z","attempt":2,"key":"","headers":{},"metadata":"","token":"tok"}` + "\n"},
		{"yaml", formatYAML, ackAuto, "1", "- id: ID\n  receipt: " + extent + ":9\n  payload: \"1\"\n  extent: " + extent + "\n  seq: 9\n  enqueued: \"2026-01-02T03:04:05.678Z\"\n  attempt: 2\n  key: \"\"\n  headers: {}\n  metadata: \"\"\n  token: tok\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &consumeRun{app: &app{format: c.format}, flags: consumeFlags{ack: c.ack}, screen: c.ack == ""}
			d := someDelivery(c.body)
			r.line(d)
			got := strings.Replace(string(r.buf), d.ID.String(), "ID", 1)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
			if c.format == formatJSON && !json.Valid(r.buf) {
				t.Error("is not JSON")
			}
		})
	}
}

// TestConsume_SummaryTellsWhatWasNacked has --nack-every nack some, or all: they are not done.
func TestConsume_SummaryTellsWhatWasNacked(t *testing.T) {
	for every, want := range map[int64]string{0: "", 1: "0 acknowledged, 4 nacked\n", 3: "3 acknowledged, 1 nacked\n"} {
		var talk bytes.Buffer
		run := &consumeRun{app: &app{stderr: &talk}, queue: "/t/a", group: "g", total: 4}
		run.flags.nackEvery = every
		if err := run.summary(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(talk.String(), "\n"); rest != want {
			t.Errorf("--nack-every %d: %q, want %q", every, rest, want)
		}
	}
}

// TestConsume_SummaryTellsWhatIsLocked: messages that the command does not acknowledge come again, unless they are
// settled by their tokens. An at-most-once group has no lock, and a command without messages leaves none.
func TestConsume_SummaryTellsWhatIsLocked(t *testing.T) {
	for _, c := range []struct {
		ack   string
		total int64
		lock  time.Duration
		want  string
	}{
		{ackAuto, 4, time.Minute, ""},
		{ackNone, 4, time.Minute, "not acknowledged: each message comes again 1m after its delivery\n"},
		{ackTokens, 1, 90 * time.Second, "not acknowledged: each message comes again 1m30s after its delivery, unless it is settled by its token\n"},
		{ackTokens, 4, 0, ""},
		{ackTokens, 0, time.Minute, ""},
	} {
		var talk bytes.Buffer
		run := &consumeRun{app: &app{stderr: &talk}, queue: "/t/a", group: "g", total: c.total, lock: c.lock}
		run.flags.ack = c.ack
		if err := run.summary(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(talk.String(), "\n"); rest != c.want {
			t.Errorf("--ack %s of %d messages: %q, want %q", c.ack, c.total, rest, c.want)
		}
	}
}

// TestConsume_SummaryCountsTheTimeUntilTheLastMessage, also when an interrupt ends a command that has waited for an
// hour.
func TestConsume_SummaryCountsTheTimeUntilTheLastMessage(t *testing.T) {
	for _, ended := range []string{"", "idle", "timeout"} {
		var talk bytes.Buffer
		began := time.Now().Add(-time.Hour)
		run := &consumeRun{app: &app{stderr: &talk}, queue: "/t/a", group: "g", total: 4, started: began, last: began.Add(2 * time.Second), ended: ended}
		run.flags.idle = 3 * time.Second
		if err := run.summary(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		want := "4 messages consumed from /t/a by g in 2s (2/s)\n"
		if ended == "idle" {
			want += "the command ended since no message came for 3s (--idle)\n"
		}
		if talk.String() != want {
			t.Errorf("ended by %q: %q, want %q", ended, talk.String(), want)
		}
	}
}
