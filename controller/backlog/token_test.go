package backlog

import (
	"math"
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
)

// FuzzPageToken reads any text as the page token of a list of backlogs. An accepted token is encoded to a token that
// means the same, and has a place in each order.
func FuzzPageToken(f *testing.F) {
	for _, text := range []string{
		"", " ", "  ", "0 /t/q g", "0 /t/q g ", "18446744073709551615 /t/q g", "18446744073709551616 /t/q g", "-1 /t/q g", "+1 /t/q g", "01 /t/q g",
		"1 \x00 \xff", "1 " + strings.Repeat("q", maxToken) + " g",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseToken(text)
		if err != nil {
			if core.CodeOf(err) != core.CodeBadArgument {
				t.Fatalf("an error of another code: %v", err)
			}
			return
		}
		if again, err := parseToken(got.String()); text != "" && (err != nil || again != got) {
			t.Fatalf("%q is written as %q, which is %+v: %v", text, got, again, err)
		}
		for _, order := range []string{byBacklog, byAge, byName} {
			if other := (token{value: math.MaxUint64, path: "/t/q", group: "g"}); compareTokens(order, got, got) != 0 || compareTokens(order, got, other) != -compareTokens(order, other, got) {
				t.Fatalf("%q has no place in the order of %s", text, order)
			}
		}
	})
}
