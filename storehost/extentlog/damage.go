package extentlog

import (
	"errors"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// When I/O errors of one extent are its damage: so many, each some time after the one before, over a while. Less may be
// a cable, a path or a controller that recovers.
const (
	ioErrorsDamage = 3
	ioErrorsApart  = 10 * time.Second // closer ones count once
	ioErrorsSpan   = time.Minute      // between the first and the last, at least
	ioErrorsForget = time.Hour        // without another one
)

// ioErrors counts the I/O errors that reads of one extent met.
type ioErrors struct {
	first, last time.Time
	count       int
}

// add counts one and reports whether they are damage by now.
func (c *ioErrors) add(now time.Time) bool {
	if c.count == 0 || now.Sub(c.last) > ioErrorsForget {
		*c = ioErrors{first: now, last: now, count: 1}
		return false
	}
	if now.Sub(c.last) >= ioErrorsApart {
		c.count, c.last = c.count+1, now
	}
	return c.count >= ioErrorsDamage && c.last.Sub(c.first) >= ioErrorsSpan
}

// diskError tells damage from what may pass. Only a failed checksum, a file that is missing, and I/O errors that
// persist are CodeCorrupt, by which the replica is quarantined; without file descriptors or memory nothing is known of
// its bytes: CodeUnavailable.
func diskError(x *extent, err error) error {
	if errors.Is(err, pebble.ErrClosed) {
		return errClosed()
	}
	if pebble.IsCorruptionError(err) && !isShortage(err) || errors.Is(err, syscall.EIO) && x.ioError(time.Now()) {
		return core.Errorf(core.CodeCorrupt, "extent %s cannot be read from the disk: %w", x.id, err)
	}
	return core.Errorf(core.CodeUnavailable, "extent %s cannot be read from the disk now; try again, or read another replica: %w", x.id, err)
}

// isShortage reports whether the process or the machine lacked something.
func isShortage(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// ioError counts an I/O error and reports whether it is damage by now.
func (x *extent) ioError(now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.ioErrors.add(now)
}

// damage marks the extent. news is false when that is known, and persisted or on its way.
func (x *extent) damage(why string) (news bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	news = !x.mu.state.Damaged || x.mu.lifting
	x.mu.verdicts++
	x.mu.state.Damaged = true
	if news {
		x.mu.state.Why, x.mu.lifting = why, false
	}
	return news
}

func (x *extent) damaged() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.state.Damaged
}

// verdict is how often the extent was found to be damaged in this run.
func (x *extent) verdict() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.verdicts
}

// acquit begins to lift the quarantine; false when damage was found after verdict.
func (x *extent) acquit(verdict int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.lifting = x.mu.verdicts == verdict
	return x.mu.lifting
}

// quarantine marks an extent whose bytes cannot be trusted; peers repair it. A diverged one holds sound bytes that are
// other than those of its peers.
func (e *Engine) quarantine(x *extent, why string, diverged bool) {
	if !x.damage(why) {
		return
	}
	e.quarantined.Add(1)
	e.log.Error("extent quarantined", "extent", x.id, "why", why)
	e.index.note(x, e.identity.Run)
	e.queue.offer(request{
		control: true,
		stage: func(g *group) error {
			if x.isRemoved() || x.next.Extent.ID.IsZero() {
				return notFound(x.id)
			}
			x.next.Damaged, x.next.Why, x.next.Diverged = true, why, diverged
			return e.stageRow(g, x)
		},
		answer: func(error) {}, // it is known in memory
	})
}

// lift ends the quarantine of an extent that was verified whole; CodeConflict when damage was found after verdict.
func (e *Engine) lift(x *extent, verdict int) error {
	err := e.do(request{control: true, stage: func(g *group) error {
		switch {
		case x.isRemoved() || x.next.Extent.ID.IsZero():
			return notFound(x.id)
		case x.next.Diverged:
			return diverged(x.id)
		case !x.acquit(verdict):
			return core.Errorf(core.CodeConflict, "extent %s was found to be damaged again; verify it again", x.id)
		}
		x.next.Damaged, x.next.Why = false, ""
		if err := e.stageRow(g, x); err != nil {
			return err
		}
		g.lifted = append(g.lifted, x)
		return nil
	}})
	if err == nil {
		e.log.Warn("quarantine lifted: every checksum holds", "extent", x.id)
	}
	return err
}

// release lets everybody see that the quarantine is lifted, unless damage was found meanwhile; only settleLoop calls
// it.
func (x *extent) release() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.lifting {
		x.mu.lifting, x.mu.state.Damaged, x.mu.state.Why, x.mu.ioErrors = false, false, "", ioErrors{}
	}
}

func damaged(id core.ExtentID) error {
	return core.Errorf(core.CodeCorrupt, "extent %s is quarantined: its bytes failed a check; repair it from another replica", id)
}

func diverged(id core.ExtentID) error {
	return core.Errorf(core.CodeConflict, "extent %s holds other records here than its other replicas; it stays quarantined, repair it from one of them", id)
}
