package outputhost

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/columbamq/columba/wire"
)

func TestConsumerNameIsCutAtACharacter(t *testing.T) {
	for _, c := range []string{"a", "é", "世", "🕊"} {
		for pad := range len(c) {
			name := strings.Repeat("x", pad) + strings.Repeat(c, wire.MaxConsumerName)
			got := clipName(name)
			if !utf8.ValidString(got) || len(got) > wire.MaxConsumerName || len(got) <= wire.MaxConsumerName-len(c) || !strings.HasPrefix(name, got) {
				t.Errorf("%d and %q: cut to %d bytes %q, want valid UTF-8 of at most %d bytes", pad, c, len(got), got, wire.MaxConsumerName)
			}
		}
	}
	exact := strings.Repeat("é", wire.MaxConsumerName/2)
	if got := clipName(exact); got != exact {
		t.Errorf("a name of exactly %d bytes was cut to %d", len(exact), len(got))
	}
}
