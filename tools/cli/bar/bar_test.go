package bar

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func wide() int { return 200 }

func TestLine(t *testing.T) {
	for _, c := range []struct {
		o       Options
		counted int64
		took    time.Duration
		want    string
	}{
		{Options{What: "queues", Width: wide}, 0, 0, "queues 0 ⠋ 0/s 0s"},
		{Options{What: "queues", Width: wide}, 30, 1500 * time.Millisecond, "queues 30 ⠙ 20/s 1s"},
		{Options{What: "messages", Total: 200, Width: wide}, 0, 0, "messages 0 / 200 [" + strings.Repeat("-", 40) + "] 0.00% 0/s ETA ?"},
		{Options{What: "messages", Total: 200, Width: wide}, 50, 10 * time.Second, "messages 50 / 200 [" + strings.Repeat("=", 10) + strings.Repeat("-", 30) + "] 25.00% 5/s ETA 30s"},
		{Options{What: "messages", Total: 200, Width: wide}, 250, 10 * time.Second, "messages 250 / 200 [" + strings.Repeat("=", 40) + "] 100.00% 25/s ETA 0s"},
		{
			Options{What: "publishing", Total: 3 << 20, Bytes: true, Width: wide}, 3 << 19, 2 * time.Minute,
			"publishing 1.5 MiB / 3.0 MiB [" + strings.Repeat("=", 20) + strings.Repeat("-", 20) + "] 50.00% 12.8 KiB/s ETA 2m0s",
		},
		{Options{What: "publishing", Total: 1 << 60, Bytes: true, Width: wide}, 1023, time.Second, "publishing 1023 B / 1048576.0 TiB [" + strings.Repeat("-", 40) + "] 0.00% 1023 B/s ETA ?"},
		{Options{What: "messages", Total: 10, Width: func() int { return 1 }}, 10, time.Second, "messages 10 / 10 [=====] 100.00% 10/s ETA 0s"},
	} {
		if got := c.o.line(c.counted, c.took); got != c.want {
			t.Errorf("%d after %s:\ngot  %s\nwant %s", c.counted, c.took, got, c.want)
		}
	}
}

// TestDraw_FitsTheTerminal: a line that is longer would leave a part of itself behind each time.
func TestDraw_FitsTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 100).Draw(t, "width")
		var out bytes.Buffer
		b := &Bar{began: time.Now(), o: Options{
			Out: &out, Width: func() int { return width }, What: rapid.StringOfN(rapid.RuneFrom([]rune("aä")), 0, 30, -1).Draw(t, "what"),
			Total: rapid.Int64().Draw(t, "total"), Bytes: rapid.Bool().Draw(t, "bytes"),
		}}
		b.counted.Store(rapid.Int64Min(0).Draw(t, "counted"))
		b.draw()
		line, ok := strings.CutPrefix(strings.TrimSuffix(out.String(), "\x1b[K"), "\r")
		if n := utf8.RuneCountInString(line); !ok || n >= width || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("%q has %d columns of %d", out.String(), n, width)
		}
	})
}

func TestBar_DrawsUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := Start(Options{Out: &out, Width: wide, What: "messages", Total: 4})
		b.Add(1)
		time.Sleep(Every + time.Millisecond)
		synctest.Wait()
		b.Add(3)
		b.Finish()
		var drawn []string
		for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\r")[1:] {
			drawn = append(drawn, strings.Join(strings.Fields(line)[:4], " "))
		}
		if got, want := strings.Join(drawn, ", "), "messages 0 / 4, messages 1 / 4, messages 4 / 4"; got != want || !strings.HasSuffix(out.String(), "\n") {
			t.Errorf("drawn is %q, want %s and the end of the line", out.String(), want)
		}
		before := out.Len()
		time.Sleep(time.Minute)
		if out.Len() != before {
			t.Error("it draws after its end")
		}
	})
}

// TestBar_Above: a line replaces the bar, which is drawn below it again.
func TestBar_Above(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := Start(Options{Out: &out, Width: wide, What: "messages"})
		synctest.Wait()
		out.Reset()
		b.Above("a node is away")
		b.Finish()
		if got := out.String(); !strings.HasPrefix(got, "\ra node is away\x1b[K\n\rmessages 0") {
			t.Errorf("drawn is %q", got)
		}
	})
}
