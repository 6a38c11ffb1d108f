package core

import "testing"

func TestListVersion_HighestCounterThenControllerThenRun(t *testing.T) {
	run := func(b byte) RunID { return RunID{ID{b}} }
	sorted := []ListVersion{
		{}, {Counter: 1}, {Counter: 1, Controller: "a"}, {Counter: 1, Controller: "a", Run: run(1)}, {Counter: 1, Controller: "a", Run: run(2)},
		{Counter: 1, Controller: "b"}, {Counter: 2}, {Counter: 1 << 63, Controller: "a"},
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := a.Compare(b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%+v compared with %+v is %d", a, b, got)
			}
		}
	}
}
