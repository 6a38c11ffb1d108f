package quota

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

var start = time.Unix(1_700_000_000, 0)

// TestBucket_KeepsItsRate takes whenever the bucket is open, in steps of any size and at rates that change, and
// compares with what time pays for.
func TestBucket_KeepsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(25, 1e9) // the largest take is owed for less than mostOwed, beyond which it is forgiven
		now, current := start, rate.Draw(t, "rate")
		var b Bucket
		b.Set(current, now)
		most := current // of the rates
		paid, took := 0.0, 0.0
		largest := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				current = rate.Draw(t, "rate")
				most = max(most, current)
				b.Set(current, now)
			case 1, 2:
				d := time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause"))
				now = now.Add(d)
				paid += current * d.Seconds()
			default:
				n := rapid.IntRange(1, 1<<20).Draw(t, "n")
				left := b.Left(now)
				if (left == 0) != (b.Wait(now) > 0) {
					t.Fatalf("%d are left, and it says to wait %s", left, b.Wait(now))
				}
				if left == 0 {
					continue
				}
				if rapid.Bool().Draw(t, "no more than is left") {
					n = min(n, left)
				}
				largest = max(largest, n)
				took += float64(n)
				b.Take(n, now)
			}
			if slack := most*Burst.Seconds() + float64(largest); took > (paid+slack)*(1+1e-6)+1 {
				t.Fatalf("%g were taken, %g are paid for and %g may be owed", took, paid, slack)
			}
		}
	})
}

// TestBucket_WaitIsEnough waits as long as it says, and no longer.
func TestBucket_WaitIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Bucket
		b.Set(rapid.Float64Range(1, 1e7).Draw(t, "rate"), start)
		for range 5 {
			b.Take(rapid.IntRange(1, 1000).Draw(t, "n"), start)
		}
		wait := b.Wait(start)
		if wait > 0 && b.Wait(start.Add(wait-1)) == 0 {
			t.Errorf("it is open before %s are over", wait)
		}
		if later := b.Wait(start.Add(wait)); later > 0 {
			t.Errorf("after %s it says %s more", wait, later)
		}
	})
}

func TestBucket_SteadyUse(t *testing.T) {
	var b Bucket
	b.Set(100, start)
	took := 0
	for ms := range 10_000 {
		if now := start.Add(time.Duration(ms) * time.Millisecond); b.Wait(now) == 0 {
			b.Take(1, now)
			took++
		}
	}
	if took < 1090 || took > 1110 { // 10 s, and what was saved up
		t.Errorf("%d in 10 s at 100 a second, want 1,100", took)
	}
}

// TestBucket_NoRate owes for long what it let pass, until it gets a rate.
func TestBucket_NoRate(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN()} {
		var b Bucket
		b.Set(rate, start)
		b.Take(1, start)
		if b.Wait(start) < time.Minute {
			t.Errorf("a rate of %g: open again in %s", rate, b.Wait(start))
		}
		b.Set(1000, start)
		if b.Wait(start) > time.Second {
			t.Errorf("one message owed at 1000 a second: closed for %s", b.Wait(start))
		}
	}
}

func TestBucket_Concurrent(t *testing.T) {
	var b Bucket
	b.Set(1000, start)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				b.Take(1, start)
			}
		})
	}
	wg.Wait()
	if got, want := b.Wait(start), 4*time.Second-Burst+1; (got - want).Abs() > time.Millisecond {
		t.Errorf("4000 taken at 1000 a second: %s, want %s", got, want)
	}
}

func TestBucket_AllocatesNothing(t *testing.T) {
	var b Bucket
	b.Set(1e6, start)
	if n := testing.AllocsPerRun(100, func() {
		if b.Wait(start) == 0 {
			b.Take(3, start)
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.Float64Range(0, 1e9).Draw(t, "budget")
		needs := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 1, 12).Draw(t, "needs")
		shares := Split(budget, needs)
		sum, equal := 0.0, budget/float64(len(needs))
		for i, s := range shares {
			sum += s
			if s < min(needs[i], equal)-1e-6*(budget+1) {
				t.Errorf("share %d is %g; it needs %g, an equal part is %g", i, s, needs[i], equal)
			}
			if s < equal*floor*(1-1e-9) {
				t.Errorf("share %d is %g, less than the floor", i, s)
			}
			for j, other := range shares {
				if needs[i] < needs[j] && s > other+1e-6*(budget+1) {
					t.Errorf("share %d of %g is above share %d of %g, which needs more", i, s, j, other)
				}
			}
		}
		if math.Abs(sum-budget) > 1e-6*(budget+1) {
			t.Errorf("the shares are %g together, the budget is %g", sum, budget)
		}
	})
}

func TestSplit_ByNeed(t *testing.T) {
	got := Split(100, []float64{10, 500, 30})
	if got[0] != 10 || got[1] != 60 || got[2] != 30 {
		t.Errorf("100 for needs of 10, 500 and 30: %v", got)
	}
}

// TestBook_NeverGivesMoreThanThereIs has hosts come, ask, go silent and return, at budgets that change; only a lower
// budget may be exceeded, by what was given before, until that is over.
func TestBook_NeverGivesMoreThanThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		runs := make([]core.RunID, 4)
		for i := range runs {
			runs[i] = core.RunID{ID: core.NewID(start.Add(time.Duration(i)))}
		}
		now, budget := start, 1000.0
		lowered := start.Add(-LeaseFor)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				next := rapid.Float64Range(0, 2000).Draw(t, "budget")
				if next < budget {
					lowered = now
				}
				budget = next
			case 1:
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*LeaseFor)).Draw(t, "pause")))
			default:
				run := rapid.SampledFrom(runs).Draw(t, "run")
				a := Ask{Run: run, Need: rapid.Float64Range(0, 3000).Draw(t, "need")}
				if rapid.Bool().Draw(t, "after a take-over") {
					a.Unheard, a.Held = runs, rapid.Float64Range(0, 3000).Draw(t, "held")
					a.Keeps = rapid.Bool().Draw(t, "keeps")
				}
				amount, hosts := b.Grant(a, budget, now)
				if amount < 0 || hosts < 1 || hosts > len(runs) {
					t.Fatalf("%g for one of %d hosts", amount, hosts)
				}
			}
			if held := b.Held(now); held > budget*(1+1e-9) && now.Sub(lowered) >= LeaseFor {
				t.Fatalf("%g are held of %g", held, budget)
			}
		}
	})
}

// TestBook_FollowsNeed moves the load from one host to another: within two rounds the budget is where it is needed.
func TestBook_FollowsNeed(t *testing.T) {
	var b Book
	x, y := core.RunID{ID: core.NewID(start)}, core.RunID{ID: core.NewID(start.Add(time.Second))}
	b.Grant(Ask{Run: x, Need: 5000}, 1000, start)
	if amount, hosts := b.Grant(Ask{Run: y, Need: 0}, 1000, start); amount > 1 || hosts != 2 {
		t.Errorf("%g of a budget that another holds whole, %d hosts", amount, hosts)
	}
	now := start
	var gx, gy float64
	for range 2 {
		now = now.Add(RenewEvery)
		gx, _ = b.Grant(Ask{Run: x, Need: 0}, 1000, now)
		gy, _ = b.Grant(Ask{Run: y, Need: 5000}, 1000, now)
	}
	if gx > 50 || gy < 950 {
		t.Errorf("after two rounds the idle host holds %g, the busy one %g of 1000", gx, gy)
	}
	if amount, _ := b.Grant(Ask{Run: x, Need: 5000}, 1000, now.Add(LeaseFor)); amount != 1000 {
		t.Errorf("%g of 1000 once the other's is over", amount)
	}
}

// A need that is no number takes nothing: the parts of others would be none either, and each would make the next one so
// for good.
func TestBook_NeedThatIsNoNumber(t *testing.T) {
	var b Book
	x, y, liar := core.RunID{ID: core.NewID(start)}, core.RunID{ID: core.NewID(start.Add(time.Second))}, core.RunID{ID: core.NewID(start.Add(2 * time.Second))}
	b.Grant(Ask{Run: liar, Need: math.NaN()}, 100, start)
	var sum float64
	for now := start; now.Before(start.Add(2 * LeaseFor)); now = now.Add(RenewEvery) {
		sum = 0
		for _, run := range []core.RunID{x, y} {
			amount, _ := b.Grant(Ask{Run: run, Need: 1000}, 100, now)
			if sum += amount; !(amount >= 0) {
				t.Fatalf("%s after the start a host gets %v", now.Sub(start), amount)
			}
		}
	}
	if sum < 99 || sum > 101 {
		t.Errorf("two hosts share %v of 100", sum)
	}
}

// TestBook_AfterATakeOver has hosts hold parts that another book gave.
func TestBook_AfterATakeOver(t *testing.T) {
	x, y, z := core.RunID{ID: core.NewID(start)}, core.RunID{ID: core.NewID(start.Add(time.Second))}, core.RunID{ID: core.NewID(start.Add(2 * time.Second))}
	all := []core.RunID{x, y, z}
	for name, c := range map[string]struct {
		asks []Ask
		want []float64
	}{
		"nobody holds anything":            {[]Ask{{Run: x, Need: 5000}, {Run: y}}, []float64{200, 200}},
		"one holds more than it needs":     {[]Ask{{Run: x, Need: 10, Held: 500}}, []float64{500}},
		"one needs more than it holds":     {[]Ask{{Run: x, Need: 5000, Held: 100}}, []float64{200}},
		"one holds what is no number":      {[]Ask{{Run: x, Held: math.NaN()}}, []float64{200}},
		"one says it holds all, and more":  {[]Ask{{Run: x, Held: 400}, {Run: y, Held: math.Inf(1)}}, []float64{400, 200}},
		"the last one makes it known":      {[]Ask{{Run: x, Held: 500}, {Run: y, Held: 90}, {Run: z, Need: 5000}}, []float64{500, 90, 10}},
		"who asks again needs what it has": {[]Ask{{Run: x, Held: 500}, {Run: x, Need: 300, Held: 500}}, []float64{500, 500}},
		"the budget is not known":          {[]Ask{{Run: x, Need: 5000, Held: 50, Keeps: true}, {Run: y, Keeps: true}, {Run: z, Need: 5000, Held: math.NaN(), Keeps: true}}, []float64{50, 0, 0}},
	} {
		var b Book
		for i, a := range c.asks {
			a.Unheard = all
			if amount, _ := b.Grant(a, 600, start); math.Abs(amount-c.want[i]) > 1e-9 {
				t.Errorf("%s: question %d gets %g of 600, want %g", name, i, amount, c.want[i])
			}
		}
	}
}

func TestKey_SpreadsNamespaces(t *testing.T) {
	of := make(map[core.ID]int)
	const names = 6400
	for i := range names {
		of[Key(fmt.Sprintf("/tenant-%d", i))]++
	}
	for key, n := range of {
		if n < names/ranges/2 || n > names/ranges*2 {
			t.Errorf("range %s has %d of %d names", key, n, names)
		}
	}
	if len(of) != ranges {
		t.Errorf("%d ranges, want %d", len(of), ranges)
	}
}

func TestRoom(t *testing.T) {
	var r Room
	if n := r.Left(); n != 0 {
		t.Errorf("%d left before there is room", n)
	}
	r.Set(100, r.Mark())
	r.Take(60)
	mark := r.Mark()
	r.Take(60) // side by side with the other
	if n := r.Left(); n != 0 {
		t.Errorf("120 of 100 are taken, and %d are left", n)
	}
	r.Set(61, mark) // of which 60 were taken since
	if n := r.Left(); n != 1 {
		t.Errorf("%d are left, want 1", n)
	}
	if r.Set(-5, mark); r.Left() != 0 {
		t.Error("there is less than no room, and some is left")
	}
}
