package dispatch

import "github.com/columbamq/columba/core"

// Wait keeps first deliveries back while it is on; what was handed out before goes on. So the shares of a chain of extents begin one after
// another, and within one of them what came back goes before what was never handed out.
func (s *Share) Wait(on bool) {
	s.chained = true
	if s.waits == on {
		return
	}
	s.waits = on
	s.wake()
}

// Begun reports whether every message up to last was handed out, or needs not be.
func (s *Share) Begun(last core.Seq) bool { return s.buffered == 0 && s.ReadFrom() > last }
