package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// journal is what happened, in order.
type journal struct {
	mu     sync.Mutex
	events []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf(format, args...))
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if diff := cmp.Diff(want, j.events); diff != "" {
		t.Errorf("what happened (-want +got):\n%s", diff)
	}
}

// fake is a part that notes what is done to it.
type fake struct {
	*journal
	name      string
	startErr  error
	startTime time.Duration
	runErr    error         // returned after runFor
	runFor    time.Duration // 0: until told to stop
	drainFor  time.Duration
	stopErr   error
}

func (f *fake) Name() string { return f.name }

func (f *fake) Start(ctx context.Context) error {
	if f.startTime > 0 {
		select {
		case <-time.After(f.startTime):
		case <-ctx.Done():
			f.note("%s start broken off", f.name)
			return context.Cause(ctx)
		}
	}
	f.note("%s start", f.name)
	return f.startErr
}

func (f *fake) Run(ctx context.Context) error {
	var end <-chan time.Time
	if f.runFor > 0 {
		end = time.After(f.runFor)
	}
	select {
	case <-end:
		f.note("%s fails", f.name)
		return f.runErr
	case <-ctx.Done():
		time.Sleep(f.drainFor)
		f.note("%s drained", f.name)
		return nil
	}
}

func (f *fake) Stop(context.Context) error {
	f.note("%s stop", f.name)
	return f.stopErr
}

// run runs fakes for ten seconds unless they end before.
func run(t *testing.T, j *journal, fakes ...*fake) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var parts []Part
	for _, f := range fakes {
		f.journal = j
		parts = append(parts, f)
	}
	err := Run(ctx, parts, Options{Ready: func() { j.note("ready") }, Draining: func(error) time.Duration { j.note("draining"); return 0 }})
	synctest.Wait()
	return err
}

func TestStartsDownAndStopsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		if err := run(t, &j, &fake{name: "a"}, &fake{name: "b", drainFor: time.Second}, &fake{name: "c"}); err != nil {
			t.Errorf("got %v, want nil after the context's end", err)
		}
		j.want(t, "a start", "b start", "c start", "ready", "draining", "c drained", "c stop", "b drained", "b stop", "a drained", "a stop")
	})
}

func TestFailedStartStopsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		broken := errors.New("no disk")
		err := run(t, &j, &fake{name: "a"}, &fake{name: "b", startErr: broken}, &fake{name: "c"})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "start b") {
			t.Errorf("got %v, want one that names b and its cause", err)
		}
		j.want(t, "a start", "b start", "draining", "a drained", "a stop")
	})
}

func TestStartHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		slow := &fake{name: "a", startTime: time.Hour, journal: &j}
		err := Run(t.Context(), []Part{slow}, Options{StartTimeout: time.Minute})
		if err == nil || !strings.Contains(err.Error(), "not started within 1m0s") {
			t.Errorf("got %v, want the deadline of the start", err)
		}
		j.want(t, "a start broken off")
	})
}

func TestFailedRunStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		broken := errors.New("fsync failed")
		err := run(t, &j, &fake{name: "a"}, &fake{name: "b", runFor: time.Second, runErr: broken}, &fake{name: "c"})
		if !errors.Is(err, broken) || strings.Count(err.Error(), "fsync failed") != 1 {
			t.Errorf("got %v, want one that names the cause once", err)
		}
		j.want(t, "a start", "b start", "c start", "ready", "b fails", "draining", "c drained", "c stop", "b stop", "a drained", "a stop")
	})
}

func TestRunThatEndsByItselfIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		err := run(t, &j, &fake{name: "a", runFor: time.Second})
		if err == nil || !strings.Contains(err.Error(), "run a: it ended by itself") {
			t.Errorf("got %v, want a failure of a", err)
		}
	})
}

func TestRunThatFailsWhileOthersStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		broken := errors.New("port taken")
		err := run(t, &j, &fake{name: "a", runFor: time.Second, runErr: broken}, &fake{name: "b", startTime: 2 * time.Second}, &fake{name: "c"})
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want a's failure", err)
		}
		j.want(t, "a start", "a fails", "b start", "draining", "b drained", "b stop", "a stop")
	})
}

func TestStopAskedForWhileStartingIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		if err := run(t, &j, &fake{name: "a"}, &fake{name: "b", startTime: time.Hour}); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		j.want(t, "a start", "b start broken off", "draining", "a drained", "a stop")
	})
}

func TestDrainHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		began := time.Now()
		err := run(t, &j, &fake{name: "a"}, &fake{name: "b", drainFor: 40 * time.Second, stopErr: errors.New("still busy")})
		if err == nil || !strings.Contains(err.Error(), "drain b: not done within 10s") || !strings.Contains(err.Error(), "stop b: still busy") {
			t.Errorf("got %v, want the failures of b's drain and stop", err)
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("took %s, want the 10 s of running and the 10 s of the drain's deadline", took)
		}
		j.want(t, "a start", "b start", "ready", "draining", "b stop", "a drained", "a stop")
		time.Sleep(time.Minute) // the bubble ends with b's goroutine
	})
}

// TestDrainingMayShortenTheDrain: when what the parts need for their drain has failed, they get the time that Draining
// allows, and giving one up is no failure of its own.
func TestDrainingMayShortenTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		broken, began := errors.New("fsync failed"), time.Now()
		parts := []Part{
			&fake{name: "a", runFor: time.Second, runErr: broken, journal: &j}, &fake{name: "b", drainFor: 40 * time.Second, journal: &j}, &fake{name: "c", journal: &j},
		}
		var why error
		err := Run(t.Context(), parts, Options{Draining: func(err error) time.Duration { why = err; return 200 * time.Millisecond }})
		if !errors.Is(why, broken) || !errors.Is(err, broken) || strings.Contains(err.Error(), "not done") {
			t.Errorf("it drained for %v and returned %v, want the failure of a alone", why, err)
		}
		if took := time.Since(began); took != 1200*time.Millisecond {
			t.Errorf("took %s, want the second of running and the 200 ms of the drain", took)
		}
		time.Sleep(time.Minute) // the bubble ends with b's goroutine
	})
}

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			t.Logf("SKIPPED: these tests were started with %s ignored, as by nohup", sig)
			continue
		}
		ctx, stop := Signals(t.Context())
		defer stop()
		if again, _ := Signals(ctx); again != ctx {
			t.Error("a second registration would keep a second signal from ending the process")
		}
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("%s did not end the context", sig)
		}
		stop()
	}
	other, stopOther := Signals(t.Context())
	stopOther()
	if other.Err() == nil {
		t.Error("stop did not end the context")
	}
}
