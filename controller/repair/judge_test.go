package repair

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestJudge(t *testing.T) {
	p := patience{Blink: 3 * time.Second, Gone: 5 * time.Minute}
	there, blink := copied{Holder: true}, copied{Holder: true, Gone: time.Second}
	away, lost := copied{Holder: true, Gone: time.Minute}, copied{Holder: true, Gone: time.Hour}
	short, shortAway := copied{}, copied{Gone: time.Minute}
	for _, tc := range []struct {
		name   string
		copies []copied
		want   int
		is     judgement
	}{
		{"three of three", []copied{there, there, there}, 3, judgement{Good: 3}},
		{"one blinks", []copied{there, there, blink}, 3, judgement{Good: 3, Waits: true}},
		{"one store away for a minute", []copied{there, there, away}, 3, judgement{Good: 2, Waits: true}},
		{"one store gone", []copied{there, there, lost}, 3, judgement{Good: 2, Repair: true}},
		{"one replica was not reached and is away", []copied{there, there, shortAway}, 3, judgement{Good: 2, Waits: true}},
		{"one replica is short and there", []copied{there, there, short}, 3, judgement{Good: 2, Repair: true}},
		{"quarantined: no holder, and a place the less", []copied{there, there}, 3, judgement{Good: 2, Repair: true}},
		{"one holder, the others away", []copied{there, shortAway, shortAway}, 3, judgement{Good: 1, Below: true, Repair: true, Waits: true}},
		{"two wanted, one away", []copied{there, away}, 2, judgement{Good: 1, Below: true, Repair: true, Waits: true}},
		{"one wanted", []copied{there}, 1, judgement{Good: 1}},
		{"one wanted, away", []copied{away}, 1, judgement{Below: true, Repair: true, Waits: true}},
		{"back after it was replaced", []copied{there, there, there, there}, 3, judgement{Good: 4, Surplus: 1}},
		{"surplus counts who answers", []copied{there, there, blink, there}, 3, judgement{Good: 4, Waits: true}},
	} {
		if got := judge(tc.copies, tc.want, p); got != tc.is {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.is)
		}
	}
}

// TestJudge_Properties: a copy more never makes it worse, and what is repaired until it is enough ends.
func TestJudge_Properties(t *testing.T) {
	p := patience{Blink: 3 * time.Second, Gone: 5 * time.Minute}
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.IntRange(1, 5).Draw(t, "want")
		copies := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) copied {
			return copied{rapid.Bool().Draw(t, "holder"), rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, time.Hour}).Draw(t, "gone")}
		}), 0, 6).Draw(t, "copies")
		j := judge(copies, want, p)
		if j.Below && !j.Repair {
			t.Fatalf("below the minimum and left so: %+v", j)
		}
		if j.Surplus > 0 && j.Repair {
			t.Fatalf("one copy is made while another is too many: %+v", j)
		}
		more := judge(append(slices.Clone(copies), copied{Holder: true}), want, p)
		if more.Good != j.Good+1 || more.Below && !j.Below || more.Repair && !j.Repair {
			t.Fatalf("%+v, with one more %+v", j, more)
		}
		for range want {
			copies = append(copies, copied{Holder: true})
		}
		if j := judge(copies, want, p); j.Repair {
			t.Fatalf("repaired with %d good ones and still not enough: %+v", want, j)
		}
	})
}
