package publish

import (
	"testing"

	"github.com/columbamq/columba/core"
)

func TestIDSource(t *testing.T) {
	s := newIDSource()
	var last core.MessageID
	for i := range 20000 {
		id := s.next(1_700_000_000_000 + int64(i/9000))
		if id.String() <= last.String() {
			t.Fatalf("%v does not follow %v", id, last)
		}
		if id.ID[6]>>4 != 7 || id.ID[8]>>6 != 2 {
			t.Fatalf("%v is not a UUIDv7", id)
		}
		last = id
	}
	if got := s.next(0); got.String() <= last.String() {
		t.Errorf("%v after the clock went back does not follow %v", got, last)
	}
}
