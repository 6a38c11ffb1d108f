package core

import (
	"errors"
	"testing"
)

// TestPartly: an error after a first step is never one that says that nothing was done.
func TestPartly(t *testing.T) {
	if err := Partly(nil, "a is made", "do it again"); err != nil {
		t.Errorf("of nil: %v", err)
	}
	for code, c := range codes {
		want := code
		if c.class == ClassRetryable || c.class == ClassThrottled {
			want = CodeUnknown
		}
		cause := Errorf(code, "no answer")
		err := Partly(cause, "a is made", "do it again")
		if CodeOf(err) != want || !errors.Is(err, cause) || err.Error() != "a is made: no answer; do it again" {
			t.Errorf("%s: %s, %v", code, CodeOf(err), err)
		}
	}
	if err := Partly(ErrUnavailable, "a is made", ""); err.Error() != "a is made: unavailable" {
		t.Errorf("without advice: %v", err)
	}
}
