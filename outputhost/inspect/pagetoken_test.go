package inspect

import (
	"testing"

	"github.com/columbamq/columba/core"
)

// FuzzTimersAfter reads any text as the page token of a listing of timers. An accepted token is encoded to a token that
// means the same, and no time is before 1970: the index of a timer extent has none.
func FuzzTimersAfter(f *testing.F) {
	const receipt = "01a20a38-8e43-7aae-a0d7-2e3ff26532df:1"
	for _, text := range []string{
		"", "@", receipt, receipt + "@", "@5", receipt + "@5", receipt + "@-1", receipt + "@-9223372036854775808", receipt + "@9223372036854775807", receipt + "@9223372036854775808",
		receipt + "@5@5", "00000000-0000-0000-0000-000000000000:0@0", receipt + "@+5",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseTimersAfter(text)
		if err != nil {
			if code := core.CodeOf(err); code != core.CodeBadArgument && code != core.CodeBadID {
				t.Fatalf("an error of code %s: %v", code, err)
			}
			return
		}
		if p.due < 0 {
			t.Fatalf("%q is taken, with a time of %d", text, p.due)
		}
		if again, err := parseTimersAfter(p.String()); text != "" && (err != nil || again != p) {
			t.Fatalf("%q is written as %q, which is %+v: %v", text, p, again, err)
		}
	})
}
