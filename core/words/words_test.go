package words_test

import (
	"slices"
	"testing"

	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/words"
)

// TestStateOf: every place of a message has a state that users know.
func TestStateOf(t *testing.T) {
	for _, p := range []dispatch.Place{
		dispatch.PlaceDone, dispatch.PlaceUnread, dispatch.PlaceBuffered, dispatch.PlaceInFlight, dispatch.PlaceDelayed, dispatch.PlaceRetryQueue, dispatch.PlaceUnsaved,
		dispatch.PlaceReady, dispatch.PlaceIsolated, dispatch.PlaceDeadLettering, dispatch.PlaceBlocked,
	} {
		if s := words.StateOf(p); !slices.Contains(words.States, s) {
			t.Errorf("place %q has the state %q", p, s)
		}
	}
}

func TestReasons(t *testing.T) {
	if got, want := words.Reasons(), []string{"nack", "lock_timeout", "rejected", "expired"}; !slices.Equal(got, want) {
		t.Errorf("the reasons are %q, want %q", got, want)
	}
}
