package lifecycle

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalled marks contexts that end with a signal already.
type signalled struct{}

// Signals is a context that ends with the first SIGINT or SIGTERM. Before it ends, the signals are given back to what they do by
// default: whoever sees the process drain can end it at once by a second one. stop gives them back earlier. A parent made by
// Signals is returned as it is.
func Signals(parent context.Context) (ctx context.Context, stop func()) {
	if parent.Value(signalled{}) != nil {
		return parent, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithValue(parent, signalled{}, true))
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-c:
		case <-ctx.Done():
		}
		signal.Stop(c)
		cancel()
	})
	return ctx, func() {
		cancel()
		wait.Wait()
	}
}
