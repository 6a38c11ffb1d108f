package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// pause waits, but not beyond the faults.
func (t *trial) pause(d time.Duration) {
	select {
	case <-t.calm:
	case <-time.After(d):
	}
}

// ask asks an admin for something, which may fail while there are faults, and until it succeeds if it must.
func (t *trial) ask(what string, must bool, f func(ctx context.Context) error) error {
	for end := (time.Time{}); ; sleep(time.Second) {
		ctx, cancel := context.WithTimeout(t.t.Context(), 10*time.Second)
		err := f(ctx)
		cancel()
		switch {
		case err == nil:
			t.say("%s", what)
			return nil
		case !must:
			t.say("%s: %v", what, err)
			return err
		case end.IsZero() && closed(t.calm):
			end = time.Now().Add(time.Minute)
		case !end.IsZero() && time.Now().After(end):
			t.t.Errorf("%s, a minute after all faults: %v", what, err)
			return err
		}
	}
}

// publishInTheCalm publishes when nothing fails any more: nothing of that may be missing, whatever a group is promised.
func (t *trial) publishInTheCalm(random *rand.Rand) {
	<-t.calm
	sleep(2 * slack)
	stop := make(chan struct{})
	time.AfterFunc(5*time.Second, func() { close(stop) })
	t.publish(t.Client, t.load.queues[0].Path, "calm", random, stop)
}

// bury merges dead letters, and purges some, while faults go on; in the end it waits for what it began.
func (t *trial) bury(g core.GroupSpec, random *rand.Rand) {
	admin := t.Client.Admin()
	begin := func(must bool) {
		purge, rate := random.IntN(6) == 0, 5*random.IntN(3)
		var s core.Selection
		switch random.IntN(4) {
		case 0:
			s.Reasons = []string{"no"}
		case 1:
			s.MinAttempts = 2
		}
		if purge {
			if s.IsAll() {
				s.MinAttempts = 1
			}
			_ = t.ask(fmt.Sprintf("purge the dead letters of %s, %+v", g.Name, s), must, func(ctx context.Context) error {
				_, err := admin.PurgeSelected(ctx, g.Queue, g.Name, s)
				return err
			})
			return
		}
		_ = t.ask(fmt.Sprintf("merge the dead letters of %s, %+v, rate %d", g.Name, s, rate), must, func(ctx context.Context) error {
			_, err := admin.MergeSelected(ctx, g.Queue, g.Name, s, rate)
			return err
		})
	}
	for !closed(t.calm) {
		t.pause(time.Second + millis(random, 8*time.Second))
		begin(false)
		if random.IntN(5) == 0 {
			t.pause(millis(random, 3*time.Second))
			t.cancelOne(g)
		}
	}
	t.operationsEnd(g)
	if random.IntN(2) == 0 {
		begin(true)
		t.operationsEnd(g)
	}
}

// cancelOne cancels an operation that runs.
func (t *trial) cancelOne(g core.GroupSpec) {
	_ = t.ask("cancel what is done about the dead letters of "+g.Name, false, func(ctx context.Context) error {
		all, err := t.Client.Admin().ListOperations(ctx, false)
		for _, o := range all {
			if o.Group != g.Name {
				continue
			}
			if o, err = t.Client.Admin().CancelOperation(ctx, o.ID); err == nil {
				t.say("%s %s is %s with %d of %d", o.Kind, o.ID, o.State, o.Done, o.Total)
			}
		}
		return err
	})
}

// operationsEnd waits until no operation runs.
func (t *trial) operationsEnd(g core.GroupSpec) {
	var last []client.Operation
	for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); sleep(2 * time.Second) {
		all, err := t.Client.Admin().ListOperations(t.t.Context(), false)
		if last = all; err == nil && len(all) == 0 {
			return
		}
	}
	t.t.Errorf("operations on %s that do not end: %+v", g.Name, last)
}

// sought is a seek.
type sought struct {
	asked, answered time.Time
	to              core.Start
}

// seekAbout sends a group back once or more, in the middle of the faults or after them. The last time is told to the
// load.
func (t *trial) seekAbout(g core.GroupSpec, random *rand.Rand) {
	began := time.Now()
	for range 1 + random.IntN(2) {
		if random.IntN(4) == 0 {
			<-t.calm
			sleep(millis(random, 20*time.Second))
		}
		t.pause(time.Second + millis(random, 15*time.Second))
		s := sought{asked: time.Now(), to: core.Start{Mode: core.StartEarliest}}
		switch random.IntN(5) {
		case 0:
			s.to = core.Start{Mode: core.StartLatest}
		case 1, 2:
			s.to = core.Start{Mode: core.StartTime, At: began.Add(time.Duration(random.Int64N(int64(time.Since(began)))))}
		}
		if err := t.ask(fmt.Sprintf("seek %s to %s %s", g.Name, s.to.Mode, s.to.At.Format("04:05.000")), true, func(ctx context.Context) error {
			_, err := t.Client.Admin().Seek(ctx, g.Queue, g.Name, s.to)
			return err
		}); err != nil {
			return
		}
		t.load.mu.Lock()
		s.answered = time.Now()
		t.load.mu.sought = append(t.load.mu.sought, s)
		t.load.mu.Unlock()
	}
}

// off is a time in which a group was disabled, as far as its consumers were told.
type off struct{ from, to time.Time }

// switchAbout changes the settings of a group, disables it and enables it again.
func (t *trial) switchAbout(g core.GroupSpec, random *rand.Rand) {
	update := func(what string, spec core.GroupSpec, fields ...string) {
		spec.Queue, spec.Name = g.Queue, g.Name
		_ = t.ask(what, true, func(ctx context.Context) error {
			_, err := t.Client.Admin().UpdateGroup(ctx, spec, fields...)
			return err
		})
	}
	for !closed(t.calm) {
		t.pause(time.Second + millis(random, 10*time.Second))
		if random.IntN(2) == 0 {
			spec := core.GroupSpec{LockTimeout: 2*time.Second + millis(random, 5*time.Second), Delay: millis(random, 3*time.Second)}
			spec.Backoff = core.Backoff{Min: 100 * time.Millisecond, Factor: 2, Max: 5 * time.Second, Jitter: 0.5}
			update(fmt.Sprintf("%s gets lock %s, delay %s", g.Name, spec.LockTimeout, spec.Delay), spec, "lock_timeout", "delay", "backoff")
			continue
		}
		status := []core.Status{core.StatusDisabled, core.StatusSendOnly}[random.IntN(2)]
		update(fmt.Sprintf("%s becomes %s", g.Name, status), core.GroupSpec{Status: status}, "status")
		from := time.Now()
		t.pause(millis(random, 15*time.Second))
		if random.IntN(2) == 0 && closed(t.calm) {
			sleep(20 * time.Second)
		}
		to := time.Now()
		update(g.Name+" becomes enabled", core.GroupSpec{Status: core.StatusEnabled}, "status")
		t.load.mu.Lock()
		t.load.mu.off = append(t.load.mu.off, off{from, to})
		t.load.mu.Unlock()
	}
}
