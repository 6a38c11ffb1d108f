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
	often := core.Recurring{Every: 10 * time.Second}
	for told = 0; now.Before(time.Unix(1360, 0)); now = now.Add(time.Second) { // for a minute
		if often.Failed(now) {
			told++
		}
	}
	if told != 6 {
		t.Errorf("%d failures of a minute are logged every 10 s, want 6", told)
	}
	if r.Failed(now.Add(-61 * time.Second)) {
		t.Error("another failure is logged at once")
	}
	if r.Succeeded(); !r.Failed(now) {
		t.Error("the first failure after a success is not logged")
	}
}
