package lifecycle

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestEach_SideBySideUpToItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, called := time.Now(), make([]atomic.Int32, 5)
		Each(2, []int{0, 1, 2, 3, 4}, func(i, item int) {
			time.Sleep(time.Second)
			called[i].Add(int32(item) + 1)
		})
		for i := range called {
			if n := called[i].Load(); n != int32(i)+1 {
				t.Errorf("item %d: got %d, want %d", i, n, i+1)
			}
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("five calls of a second, two at a time, took %s", took)
		}
	})
}
