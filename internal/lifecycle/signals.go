package lifecycle

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// echo is within how long after a signal another one is the same: `timeout` sends it to the process and to its group, a
// terminal and a wrapper both to the process.
const echo = 100 * time.Millisecond

// signalled marks contexts that end with a signal already.
type signalled struct{}

// Signals is a context that ends with the first SIGINT, SIGTERM or SIGHUP; a terminal that is closed sends the last. A
// process that was started with SIGHUP ignored, as nohup does, goes on ignoring it. A moment later the signals are
// given back to what they do by default: whoever sees the process drain can end it at once by a second one. stop gives
// them back earlier. A parent made by Signals is returned as it is.
func Signals(parent context.Context) (ctx context.Context, stop func()) {
	if parent.Value(signalled{}) != nil {
		return parent, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithValue(parent, signalled{}, true))
	c := make(chan os.Signal, 1)
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	signal.Notify(c, signals...)
	stopped, once := make(chan struct{}), sync.Once{}
	var wait sync.WaitGroup
	wait.Go(func() {
		defer signal.Stop(c)
		select {
		case <-c:
			cancel()
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(echo):
		case <-stopped:
		}
	})
	return ctx, func() {
		once.Do(func() { close(stopped) })
		cancel()
		wait.Wait()
	}
}
