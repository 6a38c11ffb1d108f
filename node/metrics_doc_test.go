package node

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// metricsDoc describes every metric, one row of a table each: | `name` | type | labels | …
const metricsDoc = "../docs/operations/metrics.md"

// metric is what the page and the code must agree about.
type metric struct {
	Type   string // "" when it is not known: a vector that has no child yet
	Labels string // sorted, joined by spaces
}

func TestMetricsDoc(t *testing.T) {
	code, doc := metricsOfAllRoles(t), documentedMetrics(t)
	for name, c := range code {
		d, ok := doc[name]
		if !ok {
			t.Errorf("%s is not in %s", name, metricsDoc)
			continue
		}
		if c.Type == "" {
			d.Type = ""
		}
		if diff := cmp.Diff(c, d); diff != "" {
			t.Errorf("%s (-code +%s):\n%s", name, metricsDoc, diff)
		}
	}
	for name, d := range doc {
		if _, ok := code[name]; !ok {
			t.Errorf("%s is in %s and nowhere else", name, metricsDoc)
		}
		if strings.HasSuffix(name, "_total") != (d.Type == "counter") {
			t.Errorf("%s is a %s by %s; counters, and only they, end in _total", name, d.Type, metricsDoc)
		}
	}
}

var (
	mentioned = regexp.MustCompile("columba_[a-z_]+[a-z](\\{[^}`]*\\})?")
	matched   = regexp.MustCompile("([a-z_]+)(?:=~|!~|!=|=)\"")
	suffix    = regexp.MustCompile("_(bucket|sum|count)$")
)

// TestMetricsDoc_Mentions: every metric that a page of the documentation names is there, with the labels that its
// selectors ask for. So an alarm cannot be about a metric that was renamed.
func TestMetricsDoc_Mentions(t *testing.T) {
	code := metricsOfAllRoles(t)
	pages, err := filepath.Glob("../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(append(pages, more...), "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mentioned.FindAllStringSubmatch(string(text), -1) {
			name, _, _ := strings.Cut(m[0], "{")
			c, ok := code[name]
			if base := suffix.ReplaceAllString(name, ""); !ok && base != name {
				c, ok = code[base]
				ok = ok && (c.Type == "" || c.Type == "histogram")
			}
			if !ok {
				t.Errorf("%s names %s, which no role has", page, name)
				continue
			}
			seen++
			for _, label := range matched.FindAllStringSubmatch(m[1], -1) {
				if !slices.Contains(strings.Fields(c.Labels), label[1]) {
					t.Errorf("%s selects %s by %s; its labels are %q", page, name, label[1], c.Labels)
				}
			}
		}
	}
	if seen < len(code) {
		t.Errorf("%d mentions of %d metrics were found", seen, len(code))
	}
}

// errorLine is a line at level error: its message up to the first colon or semicolon.
var errorLine = regexp.MustCompile(`(?:[lL]og|limited)\.Error\("([^":;]+)`)

// TestMetricsDoc_Errors: the page has every line at level error that the server writes.
func TestMetricsDoc_Errors(t *testing.T) {
	page, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\nA line at level `error`")
	seen := 0
	for _, folder := range []string{"controller", "core", "frontend", "inputhost", "internal", "membership", "metadata", "node", "outputhost", "storehost", "wire"} {
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range errorLine.FindAllStringSubmatch(string(source), -1) {
				seen++
				if !strings.Contains(table, "`"+m[1]) {
					t.Errorf("%s logs %q at level error, which the table of %s lacks", path, m[1], metricsDoc)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !found || seen < 20 {
		t.Errorf("%d lines at level error were found, the table: %v", seen, found)
	}
}

// metricsOfAllRoles starts a server with every role and returns what its registry describes. A vector without children
// is described too; what is gathered and not described would be a collector that this test cannot vouch for.
func metricsOfAllRoles(t *testing.T) map[string]metric {
	t.Helper()
	ready := make(chan Ready, 1)
	n, err := New(testConfig(t), Options{Version: "v1", Ready: func(r Ready) { ready <- r }})
	if err != nil {
		t.Fatal(err)
	}
	registry := make(chan *prometheus.Registry, 1)
	n.build = func(res *resources) ([]namedRole, error) {
		registry <- res.metrics
		return n.buildRoles(res)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	r := receive(t, "ready", ready)
	if !slices.Equal(r.Roles, Roles) {
		t.Fatalf("the server has the roles %v, want all", r.Roles)
	}
	metrics := describe(t, receive(t, "registry", registry))
	cancel()
	if err := receive(t, "end of the server", ended); err != nil {
		t.Error(err)
	}
	for _, role := range Roles {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(metrics)), func(name string) bool { return strings.HasPrefix(name, "columba_"+role+"_") }) {
			t.Errorf("role %s has no metric", role)
		}
	}
	return metrics
}

// description is prometheus.Desc.String: a Desc shows its parts in no other way.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ".*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func describe(t *testing.T, registry *prometheus.Registry) map[string]metric {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	own := make(map[string]metric)
	known := make(map[string]bool)
	for d := range descs {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			t.Errorf("%s is of an unknown form", d)
			continue
		}
		known[parts[1]] = true
		if !strings.HasPrefix(parts[1], "columba_") {
			continue
		}
		var labels []string
		for pair := range strings.SplitSeq(parts[2]+","+parts[3], ",") {
			if label, _, _ := strings.Cut(pair, "="); label != "" {
				labels = append(labels, label)
			}
		}
		slices.Sort(labels)
		own[parts[1]] = metric{Labels: strings.Join(labels, " ")}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		if !known[f.GetName()] {
			t.Errorf("%s is gathered and not described", f.GetName())
		}
		if m, ok := own[f.GetName()]; ok {
			m.Type = strings.ToLower(f.GetType().String())
			own[f.GetName()] = m
		}
	}
	return own
}

var labelName = regexp.MustCompile("`([a-z_]+)`")

func documentedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	doc := make(map[string]metric)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `columba_") {
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			t.Errorf("%s: a row without type and labels: %s", metricsDoc, line)
			continue
		}
		name := strings.Trim(cells[1], " `")
		if _, twice := doc[name]; twice {
			t.Errorf("%s describes %s twice", metricsDoc, name)
		}
		var labels []string
		for _, m := range labelName.FindAllStringSubmatch(cells[3], -1) {
			labels = append(labels, m[1])
		}
		slices.Sort(labels)
		doc[name] = metric{Type: strings.TrimSpace(cells[2]), Labels: strings.Join(labels, " ")}
	}
	return doc
}
