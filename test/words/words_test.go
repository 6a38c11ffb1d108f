// Package words holds the texts that users read to one vocabulary: that of the glossary, docs/concepts.md.
package words

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/core/words"
)

const root = "../../"

// vocabulary are words that users read, by what they are.
type vocabulary map[string][]string

// unknown are the words of a vocabulary that a glossary does not have in backquotes, as "what: word".
func unknown(glossary string, v vocabulary) (out []string) {
	for what, all := range v {
		for _, word := range all {
			if !strings.Contains(glossary, "`"+word+"`") {
				out = append(out, what+": "+word)
			}
		}
	}
	slices.Sort(out)
	return out
}

// replaced are words that users read before, and those that they read instead.
var replaced = map[string]*regexp.Regexp{
	"delayed; the retry queue": regexp.MustCompile(`(?i)\bpark(s|ed|ing)?\b|\bListParked\b|parked_`),
	"delivery token":           regexp.MustCompile(`(^|[^-])\b[Aa]ck tokens?\b`),
	"list delayed":             regexp.MustCompile(`\blist (timers|parked)\b`),
	"lock_timeout":             regexp.MustCompile(`\block_expired\b`),
	"expired":                  regexp.MustCompile(`(?i)\blapsed?\b`),
	"dead_lettering":           regexp.MustCompile("`dying`|\\bdying\\b"),
	"dead":                     regexp.MustCompile(`"state":"dead_lettered"|state: dead_lettered`),
	"isolated":                 regexp.MustCompile("`alone`"),
	"lease_expired":            regexp.MustCompile(`\blease_lapse[sd]\b`),
	"owner_unreachable":        regexp.MustCompile(`\bowner_silent\b`),
	"retention_dropped":        regexp.MustCompile(`columba_controller_(extents|messages)_expired_total`),
	"last_error":               regexp.MustCompile(`\blast_text\b`),
	"breaker":                  regexp.MustCompile(`(?i)\bstalled\b|stalled_|_stalled|smart.retry`),
	"not_counted":              regexp.MustCompile(`(?i)\bexcuse[sd]?\b`),
	"scanned":                  regexp.MustCompile("`looked`|\"looked\":"),
	"read_scope":               regexp.MustCompile(`"home":`),
}

// target is where a link leads: names of pages stay what they are.
var target = regexp.MustCompile(`\]\([^)]*\)`)

// stale are the replaced words in a text, each with the line.
func stale(text string) (out []string) {
	for line := range strings.Lines(text) {
		line = target.ReplaceAllString(line, "]")
		if strings.HasPrefix(strings.TrimSpace(line), "reserved ") { // the number of a field that is gone
			continue
		}
		for now, was := range replaced {
			if m := was.FindString(line); m != "" {
				out = append(out, m+" (now "+now+") in: "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// everyFile visits all files of the project by their paths below the root.
func everyFile(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != root:
			return filepath.SkipDir
		case !d.IsDir():
			visit(filepath.ToSlash(strings.TrimPrefix(name, root)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isSource reports whether a file has Go source that people write.
func isSource(path string) bool {
	return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".pb.go") && !strings.HasSuffix(path, ".connect.go")
}

// files are those that fit a pattern, below the root.
func files(t *testing.T, patterns ...string) (out []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(root + p)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", p, len(found), err)
		}
		for _, f := range found {
			out = append(out, strings.TrimPrefix(f, root))
		}
	}
	return out
}

// depthFields are the counts of messages in a depth.
func depthFields() (out []string) {
	fields := (&pb.Depth{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Kind() == protoreflect.Uint64Kind && f.Name() != "bytes" {
			out = append(out, string(f.Name()))
		}
	}
	return out
}

// TestGlossary_HasEachWord: states, sources of a delay, fields of a depth and reasons.
func TestGlossary_HasEachWord(t *testing.T) {
	glossary := read(t, "docs/concepts.md")
	v := vocabulary{"state": words.States, "source of a delay": words.Sources, "reason": words.Reasons(), "field of a depth": depthFields()}
	if len(v["field of a depth"]) < 8 {
		t.Errorf("a depth has only the fields %q", v["field of a depth"])
	}
	for _, x := range unknown(glossary, v) {
		t.Errorf("docs/concepts.md has no entry with the %s", x)
	}

	t.Run("a state that nobody explains", func(t *testing.T) {
		got := unknown(glossary, vocabulary{"state": append(slices.Clone(words.States), "hibernating")})
		if !slices.Equal(got, []string{"state: hibernating"}) {
			t.Errorf("unknown are %q", got)
		}
	})
}

// stateFields are fields of JSON whose values are words of the glossary.
var stateFields = []string{"state", "source", "extent_state", "last_failure", "read_scope"}

// TestGlossary_HasTheStatesOfCommands: every JSON line of the golden files of the commands says a state in a word of
// the glossary.
func TestGlossary_HasTheStatesOfCommands(t *testing.T) {
	v, seen := vocabulary{}, 0
	for _, f := range files(t, "tools/cli/testdata/*.txt") {
		for line := range strings.Lines(read(t, f)) {
			var object any
			if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &object) != nil {
				continue
			}
			seen++
			collect(object, v)
		}
	}
	if seen < 20 || len(v["state"]) < 5 {
		t.Errorf("%d lines of JSON with the states %q", seen, v["state"])
	}
	for _, x := range unknown(read(t, "docs/concepts.md"), v) {
		t.Errorf("docs/concepts.md has no entry with the %s", x)
	}

	t.Run("a made-up line", func(t *testing.T) {
		made := vocabulary{}
		collect(map[string]any{"groups": []any{map[string]any{"state": "hibernating"}}}, made)
		if got := unknown(read(t, "docs/concepts.md"), made); !slices.Equal(got, []string{"state: hibernating"}) {
			t.Errorf("unknown are %q", got)
		}
	})
}

// collect gathers the values of the state fields in an object and those below it.
func collect(x any, v vocabulary) {
	switch x := x.(type) {
	case []any:
		for _, y := range x {
			collect(y, v)
		}
	case map[string]any:
		for name, y := range x {
			if word, is := y.(string); is && word != "" && slices.Contains(stateFields, name) && !slices.Contains(v[name], word) {
				v[name] = append(v[name], word)
			}
			collect(y, v)
		}
	}
}

// TestWords_OfWhyStuckAreListed: every reason of why-stuck has a row in docs/cli.md.
func TestWords_OfWhyStuckAreListed(t *testing.T) {
	page := read(t, "docs/cli.md")
	for _, r := range stuck.Reasons() {
		if !strings.Contains(page, "`"+string(r)+"`") {
			t.Errorf("docs/cli.md does not say what %s means", r)
		}
		for _, x := range stale(r.Text()) {
			t.Errorf("the text of %s says %s", r, x)
		}
	}
}

// TestWords_OfEventsAreListed: every event has its word in the row of its metric.
func TestWords_OfEventsAreListed(t *testing.T) {
	for line := range strings.Lines(read(t, "docs/operations/metrics.md")) {
		if strings.HasPrefix(line, "| `columba_outputhost_group_events_total`") {
			for _, x := range unknown(line, vocabulary{"event": words.Events[:]}) {
				t.Errorf("docs/operations/metrics.md has no %s", x)
			}
			return
		}
	}
	t.Error("docs/operations/metrics.md has no row for columba_outputhost_group_events_total")
}

// plain are words of metric names that need no entry in the glossary.
var plain = strings.Fields(`
	columba total seconds bytes build info server frontend controller inputhost storehost outputhost calls call code idle closed limit tables foreign refused
	requests request bodies waiting panics in flight clock skew created stopped alarms left out stores below minimum missing made orphans stale unknown
	published connections log failures failed disk hangs answers latency throttled evicted streams stream append appends fences removed damaged read copied
	scrubbed lateness redelivery redelivered rebuilt deliver oldest events messages message copies copied undecided lost quarantined retired
	unsaved queued free pending rewritten expirations dropped lettered urgent learned overdue`)

var metricRow = regexp.MustCompile("(?m)^\\| `(columba_[a-z_]+)`")

// TestMetrics_AreNamedByTheGlossary: each noun of a metric's name is a word of the glossary, or a plain one.
func TestMetrics_AreNamedByTheGlossary(t *testing.T) {
	glossary := make(map[string]bool)
	for _, word := range regexp.MustCompile(`[a-z]+`).FindAllString(strings.ToLower(read(t, "docs/concepts.md")), -1) {
		glossary[word] = true
	}
	rows := metricRow.FindAllStringSubmatch(read(t, "docs/operations/metrics.md"), -1)
	if len(rows) < 80 {
		t.Fatalf("%d metrics", len(rows))
	}
	for _, row := range rows {
		for _, x := range unnamed(glossary, row[1]) {
			t.Errorf("%s: %q is neither a word of docs/concepts.md nor a plain one", row[1], x)
		}
	}

	t.Run("a made-up metric", func(t *testing.T) {
		if got := unnamed(glossary, "columba_outputhost_hibernations_total"); !slices.Equal(got, []string{"hibernations"}) {
			t.Errorf("unnamed are %q", got)
		}
	})
}

// unnamed are the words of a metric's name that nobody explains.
func unnamed(glossary map[string]bool, name string) (out []string) {
	for _, word := range strings.Split(name, "_") {
		if !slices.Contains(plain, word) && !glossary[word] && !glossary[strings.TrimSuffix(word, "s")] {
			out = append(out, word)
		}
	}
	return out
}

// TestWords_ReplacedOnesAreGone: no text that users read has a word that was replaced. Decisions (docs/adr) and the
// models keep theirs.
func TestWords_ReplacedOnesAreGone(t *testing.T) {
	texts := files(t, "README.md", "SECURITY.md", "docs/*.md", "docs/concepts/*.md", "docs/guide/*.md", "docs/operations/*.md", "docs/format/*.md", "tools/cli/testdata/*.txt")
	texts = append(texts, "api/proto/columba/v1/public.proto", "api/proto/columba/v1/types.proto", "api/proto/columba/v1/standing.proto", "api/proto/columba/v1/operations.proto",
		"api/proto/columba/v1/internal.proto")
	for _, f := range files(t, "client/*.go", "tools/cli/*.go") {
		if !strings.HasSuffix(f, "_test.go") {
			texts = append(texts, f)
		}
	}
	for _, f := range texts {
		for _, x := range stale(read(t, f)) {
			t.Errorf("%s: %s", f, x)
		}
	}

	t.Run("a made-up text", func(t *testing.T) {
		for _, bad := range []string{"the message is parked", "`columba list timers`", "reason: lock_expired", "counted as `lapsed`", "| `alone` |"} {
			if len(stale(bad)) == 0 {
				t.Errorf("%q has no word that was replaced", bad)
			}
		}
		for _, good := range []string{"[adr/0018](../adr/0018-long-waits-are-parked.md)", "  reserved 6; // parked", "delayed", "one host alone"} {
			if got := stale(good); len(got) > 0 {
				t.Errorf("%q has %q", good, got)
			}
		}
	})
}
