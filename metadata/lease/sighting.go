package lease

import (
	"time"

	"github.com/columbamq/columba/metadata"
)

// Sighting is how long an observer has seen a row unchanged, by its own monotonic clock. The zero Sighting has seen
// nothing.
type Sighting struct {
	version metadata.Version
	since   time.Time
}

// See takes note of the row's version in an answer that came at that time. A lower version than one seen before is of a
// replica that is behind, and changes nothing.
func (s *Sighting) See(v metadata.Version, answered time.Time) {
	if s.News(v) {
		s.version, s.since = v, answered
	}
}

// News reports whether See would take note of that version.
func (s *Sighting) News(v metadata.Version) bool { return v > s.version }

// Since is when the row was first seen as it is.
func (s *Sighting) Since() time.Time { return s.since }

// Unchanged is for how long the row has been seen as it is, 0 when it was not seen.
func (s *Sighting) Unchanged(now time.Time) time.Duration {
	if s.version == 0 {
		return 0
	}
	return now.Sub(s.since)
}
