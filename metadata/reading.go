package metadata

import "github.com/columbamq/columba/core"

// Reading is the version of a row as it was read from embedded metadata. Versions of one row compare only within a run of their holder: after the
// holder has changed, the metadata may be an older copy of those before, in which the row has a lower version.
type Reading struct {
	Run     core.RunID // of the holder; zero: the metadata are not embedded
	Version Version
}

// Before reports whether the row was read before a reading that is known.
func (r Reading) Before(known Reading) bool { return r.Run == known.Run && r.Version < known.Version }
