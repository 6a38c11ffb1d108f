package extentlog

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// write makes calls for its own extents, one after another, until the power goes.
func (w *stormWork) write(random *rand.Rand, mine []*subject) {
	for range 150 {
		if w.failed() != nil || w.m.isOver() {
			return
		}
		if len(mine) < 3 {
			mine = append(mine, w.make(random))
		}
		select {
		case w.calls <- struct{}{}:
		default:
		}
		i := random.IntN(len(mine))
		if err := w.call(random, mine[i]); err != nil {
			w.fail(fmt.Errorf("extent %s, %v: %w", mine[i].x.ID, &mine[i].now, err))
		}
		if s := mine[i]; !s.now.here && s.now.version > 0 && random.IntN(3) == 0 { // it stays away
			mine = slices.Delete(mine, i, i+1)
		}
	}
}

func (m *stormModel) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// call makes one that fits the state.
func (w *stormWork) call(random *rand.Rand, s *subject) error {
	now := s.now
	switch {
	case !now.here && now.version == 0 && s.run == w.run && random.IntN(6) > 0:
		next := truth{here: true, opened: true}
		return w.done(s, next, func() error { return w.e.Open(s.x) })
	case !now.here:
		return w.fence(s)
	case !now.fenced && s.run == w.run && random.IntN(5) > 0:
		w.append(random, s)()
		return w.settled(s)
	case !now.fenced:
		var wait func()
		if s.run == w.run && random.IntN(2) == 0 {
			wait = w.append(random, s)
		}
		err := w.fence(s)
		if wait != nil {
			wait()
		}
		return err
	case len(s.rest) > 0:
		return w.copy(s, 1+random.IntN(len(s.rest)))
	case !now.sealed && random.IntN(2) == 0:
		b := now
		for range 1 + random.IntN(3) {
			next := stormBatch(w.t, random, &b, s.x.Kind == core.KindTimer, random.IntN(6<<10))
			b = b.with(next)
			s.rest = append(s.rest, next)
		}
		if random.IntN(4) == 0 {
			return w.overlap(s)
		}
		return w.copy(s, len(s.rest))
	case !now.sealed:
		return w.seal(random, s)
	case random.IntN(3) == 0:
		return now.compare(w.t, w.e, s.x)
	default:
		next := truth{version: now.version}
		return w.done(s, next, func() error { return w.e.Remove(s.x.ID, now.version) })
	}
}

// done makes a call that is to succeed.
func (w *stormWork) done(s *subject, next truth, call func() error) error {
	if !w.m.begin(s, next) {
		return nil
	}
	if err := call(); err != nil {
		return err
	}
	w.m.end(s, next)
	return nil
}

// settled is after all appends were answered.
func (w *stormWork) settled(s *subject) error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if len(s.may) > 0 && !w.m.over {
		return fmt.Errorf("%d appends were refused", len(s.may))
	}
	return nil
}

// fence fences, also an extent that was removed, or was never here, or has appends under way.
func (w *stormWork) fence(s *subject) error {
	w.m.mu.Lock()
	if w.m.over {
		w.m.mu.Unlock()
		return nil
	}
	version := s.now.version + 1
	base := append([]truth{s.now}, s.may...)
	gone := !s.now.here
	for _, next := range base {
		next.here, next.fenced = true, true
		s.may = append(s.may, next)
	}
	w.m.mu.Unlock()
	got, err := w.e.Fence(s.x, version)
	if err != nil {
		return err
	}
	if gone && got.Last != 0 {
		return fmt.Errorf("it came back up to %d", got.Last)
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, next := range s.may {
		if next.is(got, nil) {
			s.now, s.may, s.rest = next, nil, nil
			return nil
		}
	}
	return fmt.Errorf("it is fenced as %+v, and may be %v", got, s.may)
}

// copy copies some of what is left.
func (w *stormWork) copy(s *subject, n int) error {
	var b []byte
	for _, r := range s.rest[:n] {
		b = append(b, r.Bytes...)
	}
	next := s.now.with(s.rest[:n]...)
	s.rest = s.rest[n:]
	return w.done(s, next, func() error { _, err := w.e.Copy(s.x.ID, b); return err })
}

// overlap copies a batch, and then a run that begins with the same one, which is refused.
func (w *stormWork) overlap(s *subject) error {
	all := s.rest
	if err := w.copy(s, 1); err != nil || w.m.isOver() {
		return err
	}
	var b []byte
	for _, r := range all {
		b = append(b, r.Bytes...)
	}
	s.rest = nil
	if _, err := w.e.Copy(s.x.ID, b); core.CodeOf(err) != core.CodeGap && !w.m.isOver() {
		return fmt.Errorf("batches that overlap are taken: %w", err)
	}
	return nil
}

// seal seals at the end of some batch, or beyond all.
func (w *stormWork) seal(random *rand.Rand, s *subject) error {
	next := s.now
	next.sealed, next.version = true, s.now.version+1
	var rest []wire.Batch
	want := core.Code("")
	switch random.IntN(4) {
	case 0: // beyond
		end := next
		for range 1 + random.IntN(3) {
			b := stormBatch(w.t, random, &end, s.x.Kind == core.KindTimer, random.IntN(6<<10))
			end, rest = end.with(b), append(rest, b)
		}
		next.l = end.last()
		want = core.CodeIncomplete
		if !w.m.begin(s, next) {
			return nil
		}
		if err := w.e.Seal(s.x.ID, next.l, end.checksum(), next.version); core.CodeOf(err) != want {
			return err
		}
		w.m.end(s, next)
		s.rest = rest
		return nil
	case 1:
		next.batches = nil
	default:
		next.batches = next.batches[:random.IntN(len(next.batches)+1)]
	}
	next.l = next.last()
	return w.done(s, next, func() error { return w.e.Seal(s.x.ID, next.l, next.checksum(), next.version) })
}
