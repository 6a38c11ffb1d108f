package extentlog

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// When sealed extents are read again, to meet damage while other replicas are there to repair it from.
const (
	scrubEvery = 24 * time.Hour  // from the beginning of one pass to that of the next
	scrubDelay = 5 * time.Minute // after the start, and at least between two passes
	scrubPiece = 256 << 10
)

// scrub reads all sealed extents once in scrubEvery, at rate bytes per second at most.
func (e *Engine) scrub(rate int) {
	wait := scrubDelay
	for e.pause(wait) {
		began := time.Now()
		e.scrubPass(rate)
		wait = max(scrubEvery-time.Since(began), scrubDelay)
	}
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

func (e *Engine) scrubPass(rate int) {
	var sealed []core.ExtentID
	e.List(func(s State) bool {
		if s.Sealed && !s.Damaged {
			sealed = append(sealed, s.Extent.ID)
		}
		return true
	})
	for _, id := range sealed {
		if x := e.extent(id); x != nil && !e.scrubExtent(x, rate) {
			return
		}
	}
}

// scrubExtent verifies every byte of a sealed extent on the disk and quarantines it when one is wrong; false when the log closes.
func (e *Engine) scrubExtent(x *extent, rate int) bool {
	var at position
	for {
		s, ok := x.state()
		if !ok || !s.Sealed || s.Damaged {
			return true
		}
		if at.last >= s.Last {
			if at.last == s.Last && at.checksum != s.Checksum {
				e.quarantine(x, "its batches do not give the rolling checksum that it had")
			}
			return true
		}
		n, err := e.scrubNext(x, &at, s)
		e.scrubbed.Add(uint64(n))
		switch {
		case core.CodeOf(err) == core.CodeCorrupt:
			if _, ok := x.state(); ok { // not removed meanwhile
				e.quarantine(x, err.Error())
			}
			return true
		case err != nil:
			return false
		}
		if !e.pause(time.Duration(float64(n) / float64(rate) * float64(time.Second))) {
			return false
		}
	}
}

// scrubNext verifies the batches behind at and moves it on.
func (e *Engine) scrubNext(x *extent, at *position, s State) (bytes int, err error) {
	done, err := e.reading()
	if err != nil {
		return 0, err
	}
	defer done()
	run, err := e.readDisk(x, at.last+1, s.Last, scrubPiece, meanSize(s.Bytes, s.Last))
	if err != nil {
		return 0, err
	}
	bytes = len(run)
	for len(run) > 0 {
		var b wire.Batch
		if b, run, err = wire.NextBatch(run); err != nil {
			return bytes, err
		}
		if err := continues(x.id, *at, b); err != nil {
			return bytes, core.Errorf(core.CodeCorrupt, "%w", err)
		}
		at.last, at.checksum = b.Last(), b.Checksum
	}
	return bytes, nil
}
