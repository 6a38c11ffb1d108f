package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// consuming is a broker whose group g of /t/q has messages that the command consumes.
type consuming struct {
	t      *testing.T
	broker *clienttest.Broker
}

func newConsuming(t *testing.T, messages int, body string) *consuming {
	t.Helper()
	c := &consuming{t, clienttest.New(t)}
	c.broker.CreateQueue(t, "/t/q", core.GroupSpec{Name: "g", Start: core.Start{Mode: core.StartEarliest}, LockTimeout: time.Hour})
	var lines strings.Builder
	for i := range messages {
		lines.WriteString(strconv.Itoa(i) + body + "\n")
	}
	if code, _ := c.run(lines.String(), "publish", "/t/q"); code != 0 {
		t.Fatalf("publish: exit code %d", code)
	}
	return c
}

// run runs a command to its end.
func (c *consuming) run(stdin string, args ...string) (code int, stdout string) {
	var out, talk bytes.Buffer
	code = MainVia(c.t.Context(), c.broker.NetDial, args, strings.NewReader(stdin), &out, &talk, nil)
	if code != 0 {
		c.t.Logf("%v: %s", args, talk.String())
	}
	return code, out.String()
}

type depthLine struct {
	Ready    int
	InFlight int `json:"in_flight"`
}

func (c *consuming) depth() (d depthLine) {
	c.t.Helper()
	_, out := c.run("", "depth", "/t/q", "g", "-o", "json")
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		c.t.Fatalf("depth %q: %v", out, err)
	}
	return d
}

// eventually waits for a depth.
func (c *consuming) eventually(what string, is func(depthLine) bool) {
	c.t.Helper()
	var d depthLine
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if d = c.depth(); is(d) {
			return
		}
	}
	c.t.Fatalf("%s: the depth is still %+v", what, d)
}

// intoPipe runs `columba consume` with a pipe as its output, and returns its reading end and what waits for the end of
// the command.
func (c *consuming) intoPipe(ctx context.Context, args ...string) (reader *os.File, wait func() (code int, talk string)) {
	c.t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	var command sync.WaitGroup
	var talk bytes.Buffer
	code := -1
	command.Go(func() {
		defer writer.Close()
		code = MainVia(ctx, c.broker.NetDial, append([]string{"consume", "/t/q", "g"}, args...), strings.NewReader(""), writer, &talk, nil)
	})
	wait = func() (int, string) { command.Wait(); return code, talk.String() }
	c.t.Cleanup(func() { reader.Close(); command.Wait() })
	return reader, wait
}

// readLines reads so many lines and not a byte more.
func readLines(t *testing.T, r io.Reader, n int) {
	t.Helper()
	var b [1]byte
	for n > 0 {
		if _, err := r.Read(b[:]); err != nil {
			t.Fatalf("%d lines before the last: %v", n, err)
		}
		if b[0] == '\n' {
			n--
		}
	}
}

// head -1: only what it read is acknowledged, and the rest is there at once, not after the lock timeout.
func TestConsume_ReaderThatEndsAcknowledgesOnlyWhatItRead(t *testing.T) {
	for _, messages := range []int{2, 10, 1000} {
		t.Run(strconv.Itoa(messages), func(t *testing.T) {
			c := newConsuming(t, messages, "")
			reader, wait := c.intoPipe(t.Context())
			readLines(t, reader, 1)
			reader.Close()
			if code, talk := wait(); code != core.ExitFailed || !strings.Contains(talk, "1 message consumed") || !strings.Contains(talk, "the output is not read any more") {
				t.Errorf("exit code %d, stderr %q", code, talk)
			}
			if d := c.depth(); d != (depthLine{Ready: messages - 1}) {
				t.Errorf("depth %+v, want all but one ready", d)
			}
			code, out := c.run("", "consume", "/t/q", "g", "--count", strconv.Itoa(messages-1), "-o", "json")
			if lines := strings.Count(out, `"attempt":1,`); code != 0 || lines != messages-1 {
				t.Errorf("exit code %d, %d lines with a first attempt, want %d", code, lines, messages-1)
			}
		})
	}
}

// A reader that has read before it stops to: the lines it left in the pipe are given back.
func TestConsume_LinesLeftInThePipeAreGivenBack(t *testing.T) {
	c := newConsuming(t, 5000, "")
	reader, wait := c.intoPipe(t.Context())
	readLines(t, reader, 700)
	reader.Close()
	_, talk := wait()
	d := c.depth()
	read := 5000 - d.Ready
	if d.InFlight != 0 || read < 700-maxBatch || read > 700 || !strings.Contains(talk, strconv.Itoa(read)+" messages consumed") {
		t.Errorf("depth %+v after 700 lines were read; stderr %q", d, talk)
	}
}

// --prefetch bounds the held messages when the output is not read, also if they are nacked or given back later.
func TestConsume_PrefetchBoundsWhatIsHeld(t *testing.T) {
	for _, c := range []struct {
		args  []string
		lines int // that are read before the reader stops
		most  int // in flight, with those lines if they stay locked
		body  int
	}{
		{[]string{"--prefetch", "7"}, 0, 8, 10},
		{[]string{"--prefetch", "7"}, 100, 8, 10},
		{[]string{"--prefetch", "1"}, 10, 2, 10},
		{[]string{"--prefetch", "7", "--ack", "none"}, 0, 8, 10},
		{[]string{"--prefetch", "7", "--ack", "tokens"}, 0, 8, 10},
		{[]string{"--prefetch", "7", "--ack", "tokens"}, 100, 108, 10},
		{[]string{"--prefetch-bytes", "100KiB"}, 5, 11, 10 << 10},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			q := newConsuming(t, 300, strings.Repeat("x", c.body))
			reader, _ := q.intoPipe(t.Context(), c.args...)
			readLines(t, reader, c.lines)
			// Less than the most may stay: a batch of one line is written when the reader is slow, and credit is granted again
			// by half of the window.
			q.eventually("something is held", func(d depthLine) bool { return d.InFlight >= max(c.most/3, 1) })
			most := 0
			for range 20 {
				most = max(most, q.depth().InFlight)
			}
			if most > c.most {
				t.Errorf("%d messages are in flight, want at most %d", most, c.most)
			}
		})
	}
}

// An interrupt ends a command whose output is not read, and gives back what it holds.
func TestConsume_InterruptedWhileNobodyReads(t *testing.T) {
	c := newConsuming(t, 20, strings.Repeat("x", 200<<10))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	_, wait := c.intoPipe(ctx)
	c.eventually("something is held", func(d depthLine) bool { return d.InFlight > 1 })
	interrupt()
	if code, talk := wait(); code != 0 || !strings.Contains(talk, "0 messages consumed") {
		t.Errorf("exit code %d, stderr %q", code, talk)
	}
	if d := c.depth(); d != (depthLine{Ready: 20}) {
		t.Errorf("depth %+v, want all ready", d)
	}
}

// The last line counts as taken when the command's reader reads it only after its end.
func TestConsume_ReaderMayReadAfterTheEnd(t *testing.T) {
	c := newConsuming(t, 1, "")
	reader, wait := c.intoPipe(t.Context(), "--count", "1")
	if code, talk := wait(); code != 0 {
		t.Errorf("exit code %d, stderr %q", code, talk)
	}
	readLines(t, reader, 1)
	if d := c.depth(); d != (depthLine{}) {
		t.Errorf("depth %+v, want nothing", d)
	}
}

// A write that fails gives its messages back; so does an output that is not a pipe.
func TestConsume_FailedWriteGivesBack(t *testing.T) {
	c := newConsuming(t, 10, "")
	var talk bytes.Buffer
	code := MainVia(t.Context(), c.broker.NetDial, []string{"consume", "/t/q", "g"}, strings.NewReader(""), brokenPipe{}, &talk, nil)
	if code != core.ExitFailed || !strings.Contains(talk.String(), "what was not written was released") {
		t.Errorf("exit code %d, stderr %q", code, talk.String())
	}
	if d := c.depth(); d != (depthLine{Ready: 10}) {
		t.Errorf("depth %+v, want all ready", d)
	}
}

// All is printed once, in batches that grow.
func TestConsume_PrintsAll(t *testing.T) {
	c := newConsuming(t, 5000, "")
	_, out := c.run("", "consume", "/t/q", "g", "--count", "5000")
	lines := strings.Fields(out)
	slices.Sort(lines)
	if len(lines) != 5000 || len(slices.Compact(lines)) != 5000 {
		t.Errorf("%d lines", len(lines))
	}
	if d := c.depth(); d != (depthLine{}) {
		t.Errorf("depth %+v, want nothing", d)
	}
}
