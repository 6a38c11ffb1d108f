package backlog_test

import (
	"math"
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
)

// FuzzPageToken reads any text as the page token of a list of backlogs. An accepted token is encoded to a token that
// means the same, and has a place in each order.
func FuzzPageToken(f *testing.F) {
	for _, text := range []string{
		"", " ", "  ", "0 /t/q g", "0 /t/q g ", "18446744073709551615 /t/q g", "18446744073709551616 /t/q g", "-1 /t/q g", "+1 /t/q g", "01 /t/q g",
		"1 \x00 \xff", "1 " + strings.Repeat("q", 4096) + " g",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := backlog.ParsePlace(text)
		if err != nil {
			if core.CodeOf(err) != core.CodeBadArgument {
				t.Fatalf("an error of another code: %v", err)
			}
			return
		}
		if again, err := backlog.ParsePlace(got.String()); text != "" && (err != nil || again != got) {
			t.Fatalf("%q is written as %q, which is %+v: %v", text, got, again, err)
		}
		for _, order := range []backlog.Order{backlog.ByBacklog, backlog.ByAge, backlog.ByName} {
			if other := (backlog.Place{Value: math.MaxUint64, Path: "/t/q", Group: "g"}); order.Compare(got, got) != 0 || order.Compare(got, other) != -order.Compare(other, got) {
				t.Fatalf("%q has no place in the order of %s", text, order)
			}
		}
	})
}
