package lifecycle

import (
	"context"
	"os/signal"
	"syscall"
)

// Signals is a context that ends with the first SIGINT or SIGTERM. From then on they do what they do by default, so that a
// second one ends the process at once. stop gives them back earlier.
func Signals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, stop = signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
