package gate

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/columbamq/columba/core"
)

func enter(t *testing.T, g *Gate, n int, want core.Code, call func(i int) Call) {
	t.Helper()
	for i := range n {
		err := g.Enter(call(i))
		if err == nil && want != "" || err != nil && core.CodeOf(err) != want {
			t.Fatalf("call %d, %+v: %v, want %q", i, call(i), err, want)
		}
	}
}

func TestPollsLeavePlacesToCalls(t *testing.T) {
	g := New(8, 40)
	g.Open()
	poll := func(group string) func(int) Call {
		return func(int) Call { return Call{Poll: true, Group: group} }
	}
	enter(t, g, 10, "", poll("g")) // a quarter for a group
	enter(t, g, 1, core.CodeThrottled, poll("g"))
	enter(t, g, 30, "", func(i int) Call { return Call{Poll: true, Group: strconv.Itoa(i)} })
	enter(t, g, 1, core.CodeThrottled, poll("new")) // all are taken
	enter(t, g, 8, "", func(int) Call { return Call{} })
	enter(t, g, 1, core.CodeThrottled, func(int) Call { return Call{} })
	g.Leave(Call{Poll: true, Group: "g"})
	enter(t, g, 1, "", poll("g"))
}

func TestWaitIsForCallsAndPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, 1)
		enter(t, g, 1, core.CodeUnavailable, func(int) Call { return Call{} })
		g.Open()
		calls := []Call{{}, {Poll: true, Group: "g"}}
		enter(t, g, 2, "", func(i int) Call { return calls[i] })
		g.Close()
		enter(t, g, 1, core.CodeDraining, func(int) Call { return Call{} })
		done := make(chan error, 1)
		go func() { done <- g.Wait(context.Background()) }()
		for _, c := range calls {
			synctest.Wait()
			select {
			case <-done:
				t.Fatalf("Wait returned before %+v left", c)
			default:
			}
			g.Leave(c)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(g.mu.kinds[1].byGroup) != 0 {
			t.Error("groups without polls are kept")
		}
	})
}
