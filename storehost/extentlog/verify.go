package extentlog

import (
	"context"
	"math"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Verified is what a look at every byte of a replica found.
type Verified struct {
	Bytes  uint64 // read
	Sound  bool   // every checksum holds
	Lifted bool   // it was quarantined until now
	Why    string // it is not sound
}

// pacer waits after so many bytes were read; an error ends the verification.
type pacer func(bytes int) error

// Verify implements Log.
func (e *Engine) Verify(ctx context.Context, id core.ExtentID) (Verified, error) {
	x := e.extent(id)
	if x == nil {
		return Verified{}, notFound(id)
	}
	return e.verifyReplica(x, func(int) error {
		if ctx.Err() != nil {
			return core.Errorf(core.CodeDeadline, "extent %s was not verified in time: %w", id, context.Cause(ctx))
		}
		return nil
	})
}

// verifyReplica reads a replica and quarantines it, or lifts its quarantine, by what it finds.
func (e *Engine) verifyReplica(x *extent, pace pacer) (Verified, error) {
	verdict := x.verdict()
	s, ok := x.state()
	if !ok {
		return Verified{}, notFound(x.id)
	}
	if s.Diverged {
		return Verified{Why: "it holds other records than its other replicas; repair it from one of them"}, nil
	}
	n, err := e.verify(x, s, pace)
	v := Verified{Bytes: n}
	switch {
	case core.CodeOf(err) == core.CodeCorrupt && e.changed(x, s):
		return v, core.Errorf(core.CodeUnavailable, "extent %s was sealed or removed while it was verified; try again", x.id)
	case core.CodeOf(err) == core.CodeCorrupt:
		e.quarantine(x, err.Error(), false)
		v.Why = err.Error()
		return v, nil
	case err != nil:
		return v, err
	}
	v.Sound = true
	if s.Damaged {
		if err := e.lift(x, verdict); err != nil {
			return v, err
		}
		v.Lifted = true
	}
	return v, nil
}

// changed reports whether a removal or a seal took bytes away that s speaks of.
func (e *Engine) changed(x *extent, s State) bool {
	if _, ok := x.state(); !ok {
		return true
	}
	end, cut := x.truncated()
	return cut && end < s.Last
}

// verify reads all batches of a replica, and the index of a timer extent. CodeCorrupt when a byte is wrong or missing.
func (e *Engine) verify(x *extent, s State, pace pacer) (bytes uint64, err error) {
	var at position
	for at.last < s.Last {
		n, err := e.verifyNext(x, &at, s)
		bytes += uint64(n)
		e.scrubbed.Add(uint64(n))
		if err == nil {
			err = pace(n)
		}
		if err != nil {
			return bytes, err
		}
	}
	switch {
	case at.last != s.Last || at.checksum != s.Checksum:
		return bytes, core.Errorf(core.CodeCorrupt, "extent %s: its batches do not give the rolling checksum that it had", x.id)
	case s.Extent.Kind == core.KindTimer && x.indexed() >= s.Last:
		n, err := e.verifyIndex(x, s, pace)
		return bytes + n, err
	}
	return bytes, nil
}

// verifyNext verifies the batches behind at and moves it on.
func (e *Engine) verifyNext(x *extent, at *position, s State) (bytes int, err error) {
	done, err := e.reading()
	if err != nil {
		return 0, err
	}
	defer done()
	run, err := e.readStored(x, at.last+1, s.Last, scrubPiece, meanSize(s.Bytes, s.Last))
	if err != nil {
		return 0, err
	}
	bytes = len(run)
	if bytes == 0 {
		return 0, missing(x.id, at.last+1)
	}
	for len(run) > 0 {
		var b wire.Batch
		if b, run, err = wire.NextBatch(run); err != nil {
			return bytes, core.Errorf(core.CodeCorrupt, "extent %s: %w", x.id, err)
		}
		if err := continues(x.id, *at, b); err != nil {
			return bytes, core.Errorf(core.CodeCorrupt, "%w", err)
		}
		at.last, at.checksum = b.Last(), b.Checksum
	}
	return bytes, nil
}

// verifyIndex reads the whole index of a timer extent: each record must be there once.
func (e *Engine) verifyIndex(x *extent, s State, pace pacer) (bytes uint64, err error) {
	var seen core.Seq
	var run DueRun
	for {
		n := 0
		run, err = e.indexPiece(x, DueQuery{After: run.Passed, Start: run.Start, Until: math.MaxInt64, UpTo: s.Last, MaxBytes: scrubPiece}, func(d DueRecord) {
			seen++
			n += len(d.Record)
		})
		bytes += uint64(n)
		if err == nil {
			err = pace(n)
		}
		switch {
		case err != nil:
			return bytes, err
		case run.More:
			continue
		case seen != s.Last:
			return bytes, core.Errorf(core.CodeCorrupt, "extent %s: the index holds %d of %d records", x.id, seen, s.Last)
		}
		return bytes, nil
	}
}

func (e *Engine) indexPiece(x *extent, q DueQuery, yield func(DueRecord)) (DueRun, error) {
	done, err := e.reading()
	if err != nil {
		return DueRun{}, err
	}
	defer done()
	return e.readDue(x, q, yield)
}

// paced bounds the bytes a second; CodeUnavailable when the log closes.
func (e *Engine) paced(rate int) pacer {
	return func(n int) error {
		if !e.pause(time.Duration(float64(n) / float64(rate) * float64(time.Second))) {
			return errClosed()
		}
		return nil
	}
}
