package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/similar"
	"github.com/columbamq/columba/tools/cli/bar"
)

func TestSplitter_CutsLikeSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 20).Draw(t, "most")
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab\n"))).Draw(t, "text")
		var want []string
		for i, line := range bytes.Split(text, []byte("\n")) {
			if last := i == bytes.Count(text, []byte("\n")); last && len(line) == 0 {
				break
			}
			if len(line) > most {
				want = append(want, "too long")
			} else {
				want = append(want, string(line))
			}
		}
		var got []string
		s := newSplitter(iotestOneByte{bytes.NewReader(text)}, '\n', most)
		for {
			line, err := s.next()
			if err == io.EOF {
				break
			}
			if errors.Is(err, core.ErrTooLarge) {
				line = []byte("too long")
			} else if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(line))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("lines (-want +got):\n%s", diff)
		}
	})
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

func TestSplitter_LongerThanTheBuffer(t *testing.T) {
	const most = readBuffer + 100
	for _, n := range []int{readBuffer - 1, readBuffer, readBuffer + 1, most, most + 1, 3 * most} {
		for _, end := range []string{"\n", ""} {
			s := newSplitter(strings.NewReader(strings.Repeat("x", n)+end), '\n', most)
			line, err := s.next()
			if n > most {
				if !errors.Is(err, core.ErrTooLarge) || !strings.Contains(err.Error(), "line has") {
					t.Errorf("%d bytes: error %v, want too large", n, err)
				}
			} else if err != nil || len(line) != n {
				t.Errorf("%d bytes: got %d, %v", n, len(line), err)
			}
			if _, err := s.next(); err != io.EOF {
				t.Errorf("%d bytes: after it %v, want EOF", n, err)
			}
		}
	}
}

func TestHistogram_Quantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, math.MaxInt64), 1, 50).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		var h, other histogram
		for i, v := range values {
			if i%2 == 0 {
				h.add(time.Duration(v))
			} else {
				other.add(time.Duration(v))
			}
		}
		h.merge(&other)
		slices.Sort(values)
		want := values[min(int(q*float64(len(values))), len(values)-1)]
		got := int64(h.quantile(q))
		if got < want || float64(got) > float64(want)*(1+1.0/32)+1 {
			t.Fatalf("quantile %g of %v is %d, want %d at most 1/32 more", q, values, got, want)
		}
	})
	if got := (&histogram{}).quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing is %s, want 0", got)
	}
}

func TestOutcome_FastFormEqualsSlow(t *testing.T) {
	r := client.Receipt{ID: contentID([]byte("x")), Receipt: core.Receipt{Extent: core.ExtentID{ID: core.ID{1, 2}}, Seq: 1 << 40}}
	for _, err := range []error{nil, core.ErrTooLarge, core.ErrUnknownOutcome} {
		want := string(encode(outcomeFields(7, r, err))) + "\n"
		if got := string(appendOutcome(nil, 7, r, err)); got != want {
			t.Errorf("got %s want %s", got, want)
		}
	}
}

func TestAppendString_IsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "s")
		var got string
		if err := json.Unmarshal(appendString(nil, want), &got); err != nil || got != want {
			t.Fatalf("%q became %q, %v", want, got, err)
		}
	})
}

func TestSize(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "100": 100, "512": 512, "5B": 5, "1KiB": 1 << 10, "1.5MiB": 3 << 19, "2MB": 2e6, "3 B": 3, "1GiB": 1 << 30} {
		var s size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%q is %d, %v, want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "NaN", "1e300", "9999999TiB", "1 apple", "5", "99"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %d, want an error", text, s)
		}
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 10 * time.Second: "10s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 24 * time.Hour: "24h",
		time.Hour + time.Second: "1h0m1s", 20 * time.Minute: "20m", time.Hour + 10*time.Minute: "1h10m", 1500 * time.Millisecond: "1.5s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestClipped(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "abcde": "abcde", "abcdef": "abcd…", "äöüßé": "äöüßé", "a\nb": `a\nb`, "\x1b\x1b": `\u00…`, strings.Repeat("x", 1<<20): "xxxx…",
	} {
		if got := clipped(text, 5); got != want {
			t.Errorf("%.20q is %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		if n := utf8.RuneCountInString(clipped(text, 9)); n > 9 || n > 0 == (text == "") {
			t.Fatalf("%q is %q, %d characters", text, clipped(text, 9), n)
		}
	})
}

func TestSimilarFlag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1)
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab := similar.Distance(a, b)
		if ab != similar.Distance(b, a) || (ab == 0) != (a == b) || ab > max(len(a), len(b)) || ab > similar.Distance(a, c)+similar.Distance(c, b) {
			t.Fatalf("distance of %q and %q is %d", a, b, ab)
		}
	})
	for _, c := range []struct{ flag, want string }{
		{"--prefx", "did you mean --prefix? See `"}, {"--out", "did you mean --output? See `"}, {"--quite-another", "see `"},
		{"--al", "did you mean --all? See `"}, {"--alll", "did you mean --all? See `"}, {"--x", "see `"},
	} {
		_, stderr, code := runCLI("127.0.0.1:1", []string{"list", "queues", c.flag}, "")
		if code != core.ExitUsage || !strings.Contains(stderr, "– "+c.want) {
			t.Errorf("%s: exit code %d, stderr %q, want %q", c.flag, code, stderr, c.want)
		}
	}
}

func TestErrorLine(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{core.Errorf(core.CodeNotFound, "queue %s is gone; make another", "/a/b"), "error: queue /a/b is gone (not_found) – make another"},
		{core.Errorf(core.CodeBadName, "name %q is bad", "a; b"), "error: name \"a; b\" is bad (bad_name) – a queue is /namespace/name, a group is one name"},
		{core.Errorf(core.CodeNotFound, "extent x of queue /a/b does not exist"), "error: extent x of queue /a/b does not exist (not_found) – see `columba list extents /a/b`"},
		{core.Errorf(core.CodeNotFound, "group g of queue /a/b does not exist"), "error: group g of queue /a/b does not exist (not_found) – see `columba list groups /a/b`"},
		{core.Errorf(core.CodeNotFound, "group g of its queue does not exist"), "error: group g of its queue does not exist (not_found) – see `columba list groups PATH`"},
		{core.Errorf(core.CodeNotFound, "extent x does not exist"), "error: extent x does not exist (not_found) – see `columba list extents PATH`"},
		{core.Errorf(core.CodeNotFound, "/tmp/x does not exist"), "error: /tmp/x does not exist (not_found) – name one that exists"},
		{errors.New("odd\nthing"), `error: odd\nthing (internal) – see the server's log`},
	} {
		if got := errorLine("", c.err); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestPrinter_TableKeepsColumns(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out, format: formatTable}
	for i := range 2*tableBatch + 1 {
		p.item([]field{{name: "n", value: i}, {name: "text", value: "x"}})
	}
	p.close()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2*tableBatch+2 || lines[0] != "N    TEXT" || lines[len(lines)-1] != "2000  x" {
		t.Errorf("%d lines, first %q, last %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

func TestProgress_BeginsWithTheFirst(t *testing.T) {
	begun := 0
	newProgress := func() *progress {
		return &progress{begin: func() *bar.Bar {
			begun++
			return bar.Start(bar.Options{Out: io.Discard, Width: func() int { return 80 }})
		}}
	}
	p := newProgress()
	p.finish()
	p.add(1)
	if begun != 0 {
		t.Error("a bar was drawn after its end")
	}
	p = newProgress()
	p.add(1)
	p.add(1)
	p.finish()
	p.finish()
	if begun != 1 {
		t.Errorf("begun %d times, want once", begun)
	}
}

// TestHelp_EachCommandHasAnExample, of itself, with its name in full.
func TestHelp_EachCommandHasAnExample(t *testing.T) {
	root := (&app{}).root()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd == root || cmd.Hidden || cmd.Name() == "help" {
			return
		}
		if !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("the help of %q has no example of it", cmd.CommandPath())
		}
	}
	walk(root)
}

func TestVersion_AsAFlag(t *testing.T) {
	if out, talk, code := runCLI("127.0.0.1:1", []string{"--version"}, ""); out != "columba "+buildVersion()+"\n" || talk != "" || code != 0 {
		t.Errorf("got %q, %q, exit code %d", out, talk, code)
	}
}
