package extentlog

import (
	"encoding/binary"
	"time"

	"github.com/columbamq/columba/core"
)

// When sealed extents are read again, to meet damage while other replicas are there to repair it from.
const (
	scrubEvery  = 24 * time.Hour  // from the beginning of one pass to that of the next
	scrubDelay  = 5 * time.Minute // after the start, after an error that is no damage, and at least between two passes
	scrubForget = 7 * 24 * time.Hour
	scrubPiece  = 256 << 10

	// Quarantined extents are verified again, each after twice the time of the time before.
	reverifyFirst = 10 * time.Minute
	reverifyMost  = 24 * time.Hour
)

// scrubber reads all sealed extents once in scrubEvery, at rate bytes per second at most, and verifies quarantined ones
// again. Where a pass stands is kept on the disk, so that a store that is restarted often verifies more than its oldest
// extents. It belongs to its goroutine.
type scrubber struct {
	e    *Engine
	rate int
	pass pass
	kept time.Time // when the pass was last written down
	next time.Time // when quarantined extents are looked at again
	// again is when a quarantined extent is verified again. One that was lifted stays, so that one that comes and goes is
	// verified ever more rarely.
	again map[core.ExtentID]*reverify
}

// pass is where one stands.
type pass struct {
	began    time.Time     // zero: none was made yet
	after    core.ExtentID // verified last
	complete bool
}

type reverify struct {
	due  time.Time
	wait time.Duration
}

// scrub runs until the log closes.
func (e *Engine) scrub(rate int) {
	s := scrubber{e: e, rate: rate, pass: e.scrubbing, again: make(map[core.ExtentID]*reverify)}
	for e.pause(scrubDelay) {
		s.turn(time.Now())
	}
	s.keep()
}

// turn goes on with the pass, or begins one when it is time.
func (s *scrubber) turn(now time.Time) {
	age := now.Sub(s.pass.began)
	switch {
	case s.pass.complete && 0 <= age && age < scrubEvery:
		s.reverify(now)
		return
	case s.pass.complete || age < 0 || age > scrubForget:
		s.pass = pass{began: now}
	}
	s.pass.complete = s.run()
	s.keep()
}

// pause waits; false when the log closes.
func (e *Engine) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.stop:
		return false
	case <-timer.C:
		return true
	}
}

// run goes on with the pass; false when it met something that is no damage, and stopped there.
func (s *scrubber) run() (complete bool) {
	var sealed []core.ExtentID
	s.e.List(func(is State) bool {
		if is.Sealed && !is.Damaged && after(is.Extent.ID, s.pass.after) {
			sealed = append(sealed, is.Extent.ID)
		}
		return true
	})
	for _, id := range sealed {
		s.reverify(time.Now())
		x := s.e.extent(id)
		if x == nil || x.damaged() {
			continue
		}
		if _, err := s.e.verifyReplica(x, s.e.paced(s.rate)); err != nil && core.CodeOf(err) != core.CodeNotFound {
			return false
		}
		s.pass.after = id
		if time.Since(s.kept) >= scrubDelay {
			s.keep()
		}
	}
	return true
}

// reverify verifies quarantined extents whose time has come, each bounded by the rate, too.
func (s *scrubber) reverify(now time.Time) {
	if now.Before(s.next) {
		return
	}
	s.next = now.Add(scrubDelay)
	var quarantined []core.ExtentID
	s.e.List(func(is State) bool {
		if is.Damaged && !is.Diverged && (is.Sealed || is.Why != "") { // without a reason it may be one that differs from its peers
			quarantined = append(quarantined, is.Extent.ID)
		}
		return true
	})
	for id := range s.again {
		if s.e.extent(id) == nil {
			delete(s.again, id)
		}
	}
	for _, id := range quarantined {
		a := s.again[id]
		if a == nil {
			a = &reverify{due: now.Add(reverifyFirst), wait: reverifyFirst}
			s.again[id] = a
		}
		x := s.e.extent(id)
		if x == nil || now.Before(a.due) {
			continue
		}
		if _, err := s.e.verifyReplica(x, s.e.paced(s.rate)); core.CodeOf(err) == core.CodeUnavailable {
			return // for all others, too
		}
		a.wait = min(2*a.wait, reverifyMost)
		a.due = time.Now().Add(a.wait)
	}
}

// keep writes down where the pass stands. It is of no weight whether that succeeds.
func (s *scrubber) keep() {
	s.kept = time.Now()
	value := s.pass.encode()
	s.e.queue.offer(request{
		stage: func(g *group) error {
			if err := g.batch.Set(keyScrub, value, nil); err != nil {
				return s.e.fail(err)
			}
			return nil
		},
		answer: func(error) {},
	})
}

// encode is: version u8 | complete u8 | extent id(16) | began, unix ms u64, little endian.
func (p pass) encode() []byte {
	b := []byte{rowVersion, 0}
	if p.complete {
		b[1] = 1
	}
	b = append(b, p.after.ID[:]...)
	return binary.LittleEndian.AppendUint64(b, uint64(p.began.UnixMilli()))
}

// loadPass reads where the scrubbing stood; what cannot be read begins anew.
func (e *Engine) loadPass() error {
	b, err := e.meta(keyScrub)
	if err != nil || len(b) != 2+idLen+8 || b[0] != rowVersion {
		return err
	}
	e.scrubbing = pass{
		complete: b[1] == 1, after: core.ExtentID{ID: core.ID(b[2 : 2+idLen])}, began: time.UnixMilli(int64(binary.LittleEndian.Uint64(b[2+idLen:]))),
	}
	return nil
}

func after(id, of core.ExtentID) bool { return string(id.ID[:]) > string(of.ID[:]) }
