package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const (
	inChild   = "COLUMBA_TEST_SIGNALS"
	childSlow = 3
)

// TestSignals_OneThatIsSentTwice has a process get SIGINT again as soon as the first has ended its context, as
// `timeout` and terminals do: it goes on to its end. A later one ends it.
func TestSignals_OneThatIsSentTwice(t *testing.T) {
	if pause, err := time.ParseDuration(os.Getenv(inChild)); err == nil {
		signalTwice(pause)
	}
	for _, c := range []struct {
		pause time.Duration
		ends  bool
	}{{0, false}, {3 * echo, true}} {
		for tries := 0; ; tries++ {
			cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", inChild, c.pause))
			err := cmd.Run()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == childSlow && tries < 20 {
				continue
			}
			if ended := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT; ended != c.ends || err != nil && !ended {
				t.Errorf("the second signal after %s: %v", c.pause, err)
			}
			break
		}
	}
}

// signalTwice is the process that is signalled.
func signalTwice(pause time.Duration) {
	ctx, stop := Signals(context.Background())
	syscall.Kill(os.Getpid(), syscall.SIGINT)
	<-ctx.Done()
	began := time.Now()
	<-time.After(pause)
	again := time.Since(began)
	if pause == 0 && again > echo/2 {
		os.Exit(childSlow)
	}
	syscall.Kill(os.Getpid(), syscall.SIGINT)
	<-time.After(echo / 2) // the signal is on its way
	stop()
	os.Exit(0)
}
