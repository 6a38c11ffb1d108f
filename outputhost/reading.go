package outputhost

// readersAtOnce is how many extents a group reads side by side, oldest first: a long backlog must not be read from all
// its ends. Extents that cannot be read just now, and extents that are read to their end so far, do not count: they
// must not hold up the others. So are timer extents: each of them may have what is due first.
const readersAtOnce = 8

// mergedAtOnce is how many of them may be of extents that were merged into the group.
const mergedAtOnce = readersAtOnce / 4

// reading is what a share is to the group's readers.
type reading uint8

const (
	notRead    reading = iota // nothing of it is read any more, for now
	readBeside                // it is read whatever others are
	readBusy                  // it counts
)

// readingLocked is what the share is now.
func (s *share) readingLocked() reading {
	switch {
	case s.removed || s.retired || s.finished() || s.exhausted():
		return notRead
	case s.timers() || s.failing() || s.caughtUp():
		return readBeside
	}
	return readBusy
}

// readLocked decides what the readers of the shares that changed should do and returns it as actions to take outside
// the mutex. Readers of others are opened when the changes make room for them.
func (g *group) readLocked() (actions []func()) {
	if g.mu.closed {
		return nil
	}
	wanted := g.wantedLocked()
	if wanted != g.mu.wanted {
		g.mu.wanted = wanted
		for _, s := range g.mu.shares {
			g.touchLocked(s)
		}
	}
	room := g.mu.room
	g.mu.room = false
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		room = g.countReadingLocked(s) || room
	}
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		if action := g.readOnLocked(s); action != nil {
			actions = append(actions, action)
		}
	}
	if room && g.mu.unread > 0 {
		actions = g.openLocked(actions)
	}
	return actions
}

// neededLocked reports whether the share is to be read: without consumers only what an earlier owner left under way is,
// as it may become a dead letter.
func (s *share) neededLocked() bool { return s.group.mu.wanted || s.rules.Lacks() }

// countReadingLocked counts what the share is to the readers, and whether it waits for one. It reports whether some
// share may be given a reader after that.
func (g *group) countReadingLocked(s *share) (room bool) {
	is := s.readingLocked()
	waits := is != notRead && s.reader == nil && s.neededLocked() && s.rules.WantsMore()
	room = is != s.reading || waits && !s.waits
	s.reading = is
	if waits != s.waits {
		s.waits = waits
		if g.mu.unread--; waits {
			g.mu.unread += 2
		}
	}
	return room
}

// readOnLocked stops the share's reader, or lets its store send more.
func (g *group) readOnLocked(s *share) func() {
	r := s.reader
	s.starved = false
	switch {
	case s.reading == notRead || r == nil:
	case !s.neededLocked():
		return r.stop
	case r.mux != nil:
		ahead := g.h.readAhead()
		most, room := min(s.rules.ReadCredit(), ahead), g.h.memory.Room(s.rules.HeldBatches())
		want := min(most, room) - r.granted
		if want >= ahead/4 || r.granted <= 0 && want > 0 {
			r.granted += want
			return func() { r.credit(want) }
		}
		s.starved = room < most
	}
	return nil
}

// openLocked gives readers to the shares that wait for one, oldest first, as far as there may be more.
func (g *group) openLocked(actions []func()) []func() {
	reading, merged := 0, 0
	for _, s := range g.orderedLocked() {
		if s.reading == notRead {
			continue
		}
		if s.reading == readBusy {
			if s.rules.IsMerged() {
				if merged++; merged > mergedAtOnce && s.reader == nil {
					continue
				}
			}
			reading++
		}
		if !s.waits || !s.timers() && reading > readersAtOnce {
			continue
		}
		s.waits = false
		s.reader = &reader{g: g, s: s}
		actions = append(actions, s.reader.start)
		if g.mu.unread--; g.mu.unread == 0 {
			break
		}
	}
	return actions
}

// readAhead is what one share may have asked a store for: the host's memory for it, divided by the readers there are.
func (h *Host) readAhead() int {
	return min(h.cfg.ReadAhead, max(h.cfg.ReadMemory/max(int(h.readers.Load()), 1), minReadAhead))
}

const minReadAhead = 64 << 10

// failing: none of its stores could be read from the last time each was asked.
func (s *share) failing() bool { return int(s.misses) >= max(len(s.extent.Replicas), len(s.holders)) }

// caughtUp: what may be read of an open extent was read.
func (s *share) caughtUp() bool {
	return s.reader != nil && s.reader.told && !s.end && s.rules.Unread(s.last) == 0
}

// exhausted: everything there is was read.
func (s *share) exhausted() bool { return s.end && s.rules.Unread(s.l) == 0 }
