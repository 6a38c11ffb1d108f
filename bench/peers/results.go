package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// spread is the median of the rounds with their range.
type spread struct {
	Median, Least, Most float64
	Of                  int
	Failed              int // rounds without a number
}

// spreadOf has the lower one of two medians.
func spreadOf(v []float64) spread {
	if len(v) == 0 {
		return spread{}
	}
	s := slices.Sorted(slices.Values(v))
	return spread{Median: s[(len(s)-1)/2], Least: s[0], Most: s[len(s)-1], Of: len(s)}
}

func (s spread) String() string {
	switch {
	case s.Of == 0 && s.Failed > 0:
		return "failed"
	case s.Of == 0:
		return "–"
	}
	text := fmt.Sprintf("**%s** (%s–%s)", number(s.Median), number(s.Least), number(s.Most))
	if s.Failed > 0 {
		text += fmt.Sprintf(", failed in %d of %d rounds", s.Failed, s.Of+s.Failed)
	}
	return text
}

// number with three digits that count, and groups of three.
func number(v float64) string {
	switch {
	case v >= 1000:
		text := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case v == float64(int64(v)) || v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// over collects a number of all lives of a broker that have the row; an empty row: of all lives.
func (r *record) over(broker, row string, f func(life, measured) float64) spread {
	var v []float64
	failed := 0
	for _, l := range r.Lives {
		if l.Broker != broker {
			continue
		}
		if m, ok := l.Rows[row]; ok || row == "" {
			v = append(v, f(l, m))
		} else if _, ok := l.Failed[row]; ok {
			failed++
		}
	}
	s := spreadOf(v)
	s.Failed = failed
	return s
}

func (r *record) figure(broker string, f figure) spread {
	return r.over(broker, f.row, func(_ life, m measured) float64 { return f.of(m.Outcome) })
}

// figures are those that the plan measures.
func (r *record) figures() (out []figure) {
	for _, f := range figures {
		if slices.Contains(r.Plan.Rows, f.row) {
			out = append(out, f)
		}
	}
	return out
}

// bound is a ratio that Columba has to keep to its peer, in its median over the rounds.
type bound struct {
	title, row, peer string
	of               func(measure.Outcome) float64
	least, most      float64 // 0: none
}

var bounds = []bound{
	{"publish 1 KiB, 4 × 1,000 ÷ NATS, fsync", "publish", "nats-fsync", measure.Outcome.PerSecond, 2, 0},
	{"steady 10,000/s, p99 ÷ NATS, fsync", "steady", "nats-fsync", func(o measure.Outcome) float64 { return o.P99 }, 0, 1},
	{"consume, one ack each ÷ NATS, fsync", "consume", "nats-fsync", measure.Outcome.PerSecond, 4, 0},
}

// verdict is one bound judged.
type verdict struct {
	Name, Bound string
	Ratio       spread
	Kept        bool
}

// judge compares within each round; a bound without both sides is left out. One whose row fails here is missed.
func (r *record) judge() (out []verdict) {
	for _, b := range bounds {
		var ratios []float64
		failed := 0
		for round := range r.Plan.Rounds {
			ours, ok := r.find(turn{round, "columba"})
			theirs, also := r.find(turn{round, b.peer})
			x, hasX := ours.Rows[b.row]
			if _, bad := ours.Failed[b.row]; bad {
				failed++
			}
			y, hasY := theirs.Rows[b.row]
			if ok && also && hasX && hasY {
				ratios = append(ratios, b.of(x.Outcome)/b.of(y.Outcome))
			}
		}
		if len(ratios) == 0 && failed == 0 {
			continue
		}
		v := verdict{Name: b.title, Ratio: spreadOf(ratios), Bound: "≥ " + number(b.least)}
		v.Kept = v.Ratio.Median >= b.least
		if b.most > 0 {
			v.Bound, v.Kept = "≤ "+number(b.most), v.Ratio.Median <= b.most
		}
		if v.Ratio.Failed = failed; failed > 0 {
			v.Kept = false
		}
		out = append(out, v)
	}
	return out
}

// markdown is the page of the results.
func (r *record) markdown(now time.Time) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Columba and other brokers, %s\n", now.Format("2006-01-02"))
	line("Written by the benchmarks; how they measure is in their [README](../README.md).\n")
	for _, m := range r.Machine {
		line("* %s", m)
	}
	line("* %d rounds; %s a row, after %s of warm-up of each cluster, %s on a JVM; %d consumers, prefetch %d",
		r.Plan.Rounds, r.Plan.For, r.Plan.Warm, r.Plan.JVMWarm, consumers, prefetch)
	line("\nThe median of the rounds is bold, and their range stands in brackets. One cluster is alive at a time. Its servers")
	line("and the load generator share the machine.\n\n![medians, and ranges as lines](peers.svg)\n")

	table := func(head string, columns []string, cell func(broker string, column int) string) {
		line("| %s | %s |\n|---|%s", head, strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
		for _, name := range r.Plan.Brokers {
			var cells []string
			for i := range columns {
				cells = append(cells, cell(name, i))
			}
			line("| %s | %s |", titleOf(name), strings.Join(cells, " | "))
		}
		line("")
	}
	all := r.figures()
	for _, unit := range []string{"msg/s", "ms"} {
		var columns []string
		var of []figure
		for _, f := range all {
			if f.unit == unit {
				columns, of = append(columns, f.name), append(of, f)
			}
		}
		if len(of) > 0 {
			table(unit, columns, func(name string, i int) string { return r.figure(name, of[i]).String() })
		}
	}
	for _, l := range r.Lives {
		for _, row := range r.Plan.rows() {
			if why, ok := l.Failed[row.name]; ok {
				line("* %s, round %d, %s: **failed**: %s", titleOf(l.Broker), l.Round+1, row.title, why)
			}
		}
	}
	line("")
	rows := r.Plan.rows()
	var titles []string
	for _, row := range rows {
		titles = append(titles, row.title)
	}
	line("## CPU time of a message\n\nOf all servers + of the load generator, µs; medians.\n")
	table("µs", titles, func(name string, i int) string {
		servers := r.over(name, rows[i].name, func(_ life, m measured) float64 { return m.Servers })
		client := r.over(name, rows[i].name, func(_ life, m measured) float64 { return m.Client })
		if servers.Of == 0 {
			return servers.String()
		}
		return number(servers.Median) + " + " + number(client.Median)
	})
	line("## The disk in the same minute\n\nA file grows, and each append is followed by an fdatasync. It is measured right")
	line("before each broker's turn. The last column is the CPU time that other processes took meanwhile.\n")
	columns := []string{"1 KiB, p50, ms", "64 KiB, three files at once, MB/s", "others, %"}
	table("", columns, func(name string, i int) string {
		return r.over(name, "", func(l life, _ measured) float64 {
			return []float64{l.Disk.One, l.Disk.Three, l.Others}[i]
		}).String()
	})
	if verdicts := r.judge(); len(verdicts) > 0 {
		line("## Bounds\n\n| ratio within a round | | bound | |\n|---|--:|--:|---|")
		for _, v := range verdicts {
			line("| %s | %s | %s | %s |", v.Name, v.Ratio, v.Bound, map[bool]string{true: "PASS", false: "FAIL"}[v.Kept])
		}
		line("")
	}
	line("## Versions and settings\n\n| | version | setting |\n|---|---|---|")
	for _, name := range r.Plan.Brokers {
		broker, _ := brokerOf(name)
		line("| %s | %s | %s |", broker.title, r.Versions[name], broker.says)
	}
	for _, path := range slices.Sorted(maps.Keys(r.Clients)) {
		line("\nClient: %s %s.", path, r.Clients[path])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		line("\n**Skipped: %s**: it could not be had on this machine.", titleOf(name))
	}
	return b.String()
}

func titleOf(name string) string {
	if b, err := brokerOf(name); err == nil {
		return b.title
	}
	return name
}

// write makes peers.md, peers.json and peers.svg.
func (r *record) write(dir string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"peers.md": r.markdown(now), "peers.svg": r.plot()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return r.save(filepath.Join(dir, "peers.json"))
}
