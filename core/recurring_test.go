package core_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestRecurring_FirstFailureAndOneAMinuteAreLogged(t *testing.T) {
	var r core.Recurring
	now := time.Unix(1000, 0)
	told := 0
	for range 5 * 60 * 2 { // twice a second, for five minutes
		if r.Failed(now) {
			told++
		}
		now = now.Add(time.Second / 2)
	}
	if told != 5 {
		t.Errorf("%d failures of five minutes are logged, want 5", told)
	}
	if r.Failed(now.Add(-time.Second)) {
		t.Error("another failure is logged at once")
	}
	if r.Succeeded(); !r.Failed(now) {
		t.Error("the first failure after a success is not logged")
	}
}
