package metadatatest

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/columbamq/columba/core"
)

// callsOfACounter is a history of one counter. Of n calls half add; each tenth has no known outcome, and half of those
// took effect. wrong is how many answers are changed.
func callsOfACounter(die *rand.Rand, n, overlap, wrong int) (calls []porcupine.Operation) {
	value := 0
	for i := range n {
		in, out := counterCall{add: die.IntN(2) == 0}, counterAnswer{}
		op := porcupine.Operation{ClientId: i % overlap, Call: int64(10 * i), Return: int64(10*i + 10*overlap - 5)}
		if unknown := in.add && die.IntN(5) == 0; unknown {
			out.code, op.Return = core.CodeUnknown, math.MaxInt64
			value += die.IntN(2)
		} else {
			if in.add {
				value++
			}
			out.n = value
		}
		op.Input, op.Output = in, out
		calls = append(calls, op)
	}
	for range wrong {
		i := die.IntN(n)
		out := calls[i].Output.(counterAnswer)
		out.n += 1 + die.IntN(2)
		calls[i].Output = out
	}
	return calls
}

// TestCounterModel_ManyUnknownOutcomes: the search ends although a hundred additions may have taken effect at any time.
func TestCounterModel_ManyUnknownOutcomes(t *testing.T) {
	for seed := range uint64(5) {
		calls := callsOfACounter(rand.New(rand.NewPCG(seed, 0)), 1000, 3, 0)
		if result := porcupine.CheckOperationsTimeout(counterModel(), calls, 10*time.Second); result != porcupine.Ok {
			t.Errorf("seed %d: %s, want a linear order", seed, result)
		}
	}
}

// TestCounterModel_LosesNoOrder compares it with a model that tries each order of additions with an unknown outcome.
func TestCounterModel_LosesNoOrder(t *testing.T) {
	plain := porcupine.Model{
		Init: func() any { return 0 },
		Step: func(current, input, output any) (bool, any) {
			n, out := current.(int), output.(counterAnswer)
			if input.(counterCall).add {
				n++
			}
			return out.code == core.CodeUnknown || out.n == n, n
		},
	}
	results := make(map[porcupine.CheckResult]int)
	for seed := range uint64(2000) {
		die := rand.New(rand.NewPCG(seed, 1))
		calls := callsOfACounter(die, 12, 1+die.IntN(4), die.IntN(3))
		want := porcupine.CheckOperationsTimeout(plain, calls, 10*time.Second)
		if got := porcupine.CheckOperationsTimeout(counterModel(), calls, 10*time.Second); got != want {
			t.Fatalf("seed %d: %s, the plain model says %s: %+v", seed, got, want, calls)
		}
		results[want]++
	}
	if results[porcupine.Ok] < 200 || results[porcupine.Illegal] < 200 {
		t.Errorf("%v: want histories of both kinds", results)
	}
}
