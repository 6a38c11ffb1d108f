package metadatatest

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/columbamq/columba/core"
)

// checkTime bounds the search for a linear order; histories are kept so small that it takes milliseconds.
const checkTime = 30 * time.Second

// history records concurrent calls. A call whose outcome is unknown may take effect at any later time, or never.
type history struct {
	begin time.Time

	mu struct {
		sync.Mutex
		calls []porcupine.Operation
	}
}

func newHistory() *history { return &history{begin: time.Now()} }

// record does a call of a client and keeps what was asked, what came back, and when.
func (h *history) record(client int, input any, call func() (output any, err error)) {
	called := time.Since(h.begin)
	output, err := call()
	returned := int64(time.Since(h.begin))
	if code := core.CodeOf(err); code == core.CodeUnknown || code == core.CodeDeadline {
		returned = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.calls = append(h.mu.calls, porcupine.Operation{
		ClientId: client, Input: input, Call: int64(called), Output: output, Return: returned,
	})
}

// check fails the test when no linear order of the calls explains all answers.
func (h *history) check(t *testing.T, model porcupine.Model) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if result := porcupine.CheckOperationsTimeout(model, h.mu.calls, checkTime); result != porcupine.Ok {
		for _, op := range h.mu.calls {
			t.Logf("client %d  %d … %d  %s", op.ClientId, op.Call, op.Return, fmt.Sprint(model.DescribeOperation(op.Input, op.Output)))
		}
		t.Errorf("history of %d calls is not linearizable: %s", len(h.mu.calls), result)
	}
}

// clients runs one goroutine per client and waits for all.
func clients(n int, run func(client int)) {
	var wg sync.WaitGroup
	for c := range n {
		wg.Go(func() { run(c) })
	}
	wg.Wait()
}
