package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// hostile are texts that others publish: controls, bidirectional overrides, invisible tags, no characters, and text
// that looks like an escape.
var hostile = []string{
	"a\u007fb", "\u009b31m", "\ufffe", "\uffff", "\U0001fffe", "\u202etxt.exe", "\ufeffx", "tag\U000e0041\U000e007f", "a\u2028b\u2029c", "\u0085",
	"\x1b[2J", "tab\there", "two\nlines", "cr\rlf", `\ud83d\ude00`, `\\ud83d`, "\u00ad", "\u200b", "\x00", "世界 🕊 é\u3000x", "- : #", "",
}

// FuzzOutput prints any text in every format: what is printed steers no terminal, and JSON and YAML mean what was
// given.
func FuzzOutput(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		key, value = strings.ToValidUTF8(key, "?"), strings.ToValidUTF8(value, "?")
		want := map[string]any{"value": value, "headers": map[string]any{key: value}}
		for _, format := range []string{formatTable, formatJSON, formatYAML} {
			var b bytes.Buffer
			p := printer{w: &b, format: format}
			if err := p.item([]field{{name: "value", value: value}, {name: "headers", value: map[string]string{key: value}}}); err != nil {
				t.Fatalf("%s of %q: %v", format, value, err)
			}
			if err := p.close(); err != nil {
				t.Fatalf("%s of %q: %v", format, value, err)
			}
			for _, r := range b.String() {
				if steersInLines(r) || r == utf8.RuneError && format == formatTable {
					t.Fatalf("%s of %q prints %U as it is: %q", format, value, r, b.String())
				}
			}
			var got any
			switch format {
			case formatJSON:
				if err := json.Unmarshal(b.Bytes(), &got); err != nil {
					t.Fatalf("JSON of %q: %v: %s", value, err, b.String())
				}
				same(t, format, want, got)
			case formatYAML:
				if err := yaml.Unmarshal(b.Bytes(), &got); err != nil {
					t.Fatalf("YAML of %q: %v: %s", value, err, b.String())
				}
				same(t, format, []any{want}, got)
			}
		}
	})
}

func same(t *testing.T, format string, want, got any) {
	t.Helper()
	w, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	g, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w, g) {
		t.Fatalf("%s: read back as %s, want %s", format, g, w)
	}
}

func TestPrintableKeepsWhatHasAShape(t *testing.T) {
	for text, want := range map[string]string{
		"世界 🕊 é": "世界 🕊 é", "a\u3000b": "a\u3000b", "x\u202ey": `x\u202ey`, "\U000e0041": `\ue0041`, "\ufeff": `\ufeff`, "a\tb\n": `a\tb\n`, "\ufffd": `\ufffd`,
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %q, want %q", text, got, want)
		}
	}
}
