package lifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestTasks_StopEndsAndJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		tasks := NewTasks()
		ended := false
		inner := make(chan bool, 1)
		if !tasks.Go(func(ctx context.Context) {
			<-ctx.Done()
			inner <- tasks.Go(func(context.Context) { t.Error("a task started after Stop ran") })
			ended = errors.Is(context.Cause(ctx), cause)
		}) {
			t.Fatal("Go = false before Stop")
		}
		tasks.Stop(cause)
		if !ended {
			t.Error("Stop returned before the task had ended with the cause")
		}
		if <-inner {
			t.Error("Go from a task after Stop = true")
		}
		if tasks.Go(func(context.Context) {}) {
			t.Error("Go after Stop = true")
		}
		tasks.Stop(errors.New("again"))
	})
}
