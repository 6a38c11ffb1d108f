package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/bench/measure"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 4}, 4}, {[]float64{4, 3, 2, 1}, 2}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.of, got, c.want)
		}
	}
}

func TestParseMetrics(t *testing.T) {
	got := parseMetrics("# HELP a text 1\n# TYPE a counter\na 1.5e+06\nb{x=\"1 2\",y=\"z\"} 7\nbroken\n")
	if d := cmp.Diff(metrics{"a": 1.5e6, `b{x="1 2",y="z"}`: 7}, got); d != "" {
		t.Fatal(d)
	}
}

func TestReadyLine(t *testing.T) {
	for line, want := range map[string][]string{
		"ready addr=127.0.0.1:40001 roles=frontend data=/d\n":                               {"127.0.0.1:40001", ""},
		"ready addr=127.0.0.1:40001 roles=a,b data=/d x gossip=127.0.0.1:40002\n":           {"127.0.0.1:40001", "127.0.0.1:40002"},
		"ready addr=[::1]:40001 roles=controller,frontend data=/d gossip=127.0.0.1:40002\n": {"[::1]:40001", "127.0.0.1:40002"},
	} {
		if got := readyLine.FindStringSubmatch(line); len(got) != 3 || cmp.Diff(want, got[1:]) != "" {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestParseTop(t *testing.T) {
	const text = `File: columba
Type: cpu
      flat  flat%   sum%        cum   cum%
     1.61s 44.11% 44.11%      1.61s 44.11%  runtime.memmove
     0.05s  1.37% 45.48%      0.39s 10.68%  github.com/columbamq/columba/wire.recordSize (inline)
         0     0% 45.48%      0.05s  1.40%  os.(*File).Write
`
	entries := parseTop(text)
	want := []entry{
		{"runtime.memmove", 44.11, 44.11},
		{"github.com/columbamq/columba/wire.recordSize", 1.37, 10.68},
		{"os.(*File).Write", 0, 1.4},
	}
	if d := cmp.Diff(want, entries); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff([]share{{"copying and clearing memory", 44.11}, {"records and frames", 1.37}, {"other", 0}}, shares(entries)); d != "" {
		t.Fatal(d)
	}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, t.TempDir(), "one-machine")
	r.begin("section")()
	r.atLeast("high enough", 2, 2, "×")
	r.atMost("low enough", 0, 0, "")
	r.skip("not here", "no disk")
	if err := r.verdict(); err != nil {
		t.Fatalf("every bound was met: %v", err)
	}
	r.atMost("too high", 5, 4, "KiB")
	if r.verdict() == nil {
		t.Fatal("a missed bound is no error")
	}
	for _, want := range []string{"| high enough | 2 × | ≥ 2 | PASS |", "| not here |  |  | SKIP no disk |", "| too high | 5 KiB | ≤ 4 | FAIL |"} {
		if text := r.markdown(time.Now()); !strings.Contains(text, want+"\n") {
			t.Errorf("no line %q in:\n%s", want, text)
		}
	}
}

func TestInMemory(t *testing.T) {
	if memory, err := inMemory("/dev/shm"); err == nil && !memory {
		t.Error("/dev/shm is in memory")
	}
	if _, err := inMemory("/no such directory"); err == nil {
		t.Error("a directory that is not there")
	}
}

func TestLogAlone(t *testing.T) {
	o, err := logAlone(measure.Job{Dir: t.TempDir() + "/log", Size: 100, Records: 10, Depth: 2, Warm: time.Millisecond, For: 20 * time.Millisecond})
	if err != nil || o.Errors > 0 || o.Messages == 0 || o.Messages%10 != 0 {
		t.Fatalf("%+v, %v", o, err)
	}
}
