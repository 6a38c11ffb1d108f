package cli

import (
	"context"
	"errors"
	"syscall"
	"time"
)

const (
	// startTime is how long a command waits for a server where connections are refused: a server that was started in the
	// background needs a moment before it listens.
	startTime = 10 * time.Second
	// startNote is how long a command waits for a server before it says so.
	startNote = time.Second
	startEach = 100 * time.Millisecond
)

// startingError is the answer of a server that does not serve requests yet, or does not any more. The request had no
// effect.
type startingError struct{ error }

// whenServing repeats try while the server is starting: for startTime where connections are refused, until ctx ends
// where the server answers that it is not ready. Neither has any effect, so that requests that change something are
// repeated, too. It returns the error of the last try.
func (a *app) whenServing(ctx context.Context, try func() error) error {
	began, said := time.Now(), false
	for {
		err := try()
		waited := time.Since(began)
		var starting startingError
		switch {
		case errors.As(err, &starting):
		case errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, new(unreachableError)) && waited < a.startTime:
		default:
			return err
		}
		// A try that ctx cuts short would fail with a worse error: nobody would know whether it had an effect.
		if end, ends := ctx.Deadline(); ends && time.Until(end) < 2*startEach {
			return err
		}
		if !said && waited > startNote {
			what, _ := splitHint(err.Error())
			a.say("note: %s; waiting for it", what)
			said = true
		}
		select {
		case <-time.After(startEach):
		case <-ctx.Done():
			return err
		}
	}
}
