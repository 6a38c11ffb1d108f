package duty

import (
	"maps"
	"time"
)

const (
	// TryEvery is the least time between two calls to a silent controller.
	TryEvery = time.Second
	// maxWatched bounds the controllers that are remembered; those that move leave theirs behind.
	maxWatched = 1024
)

// Watch finds out by calls which controllers are silent. K names a controller; a name that changes with each run makes
// a restarted one a new one. The zero Watch has asked nobody. It has no clock. It is not safe for concurrent use.
//
//	        calls for Silence, and no answer to any
//	answers ──────────────────────────────────────▶ silent
//	   ◀───────────────────────────── any answer ─────┘
//
// A controller of which no call is under way is silent only if its last call ended so. Calls that fail sooner say
// nothing: the next controller is asked as soon as they fail.
type Watch[K comparable] struct {
	of map[K]*calls
}

// calls to one controller. One without a call under way is kept only while it is silent.
type calls struct {
	underWay int
	since    time.Time // calls have been under way since, and none was answered; it counts only while underWay > 0
	silent   bool      // the calls before those ended in silence
	last     time.Time // the last Begin or Try
}

// Begin notes a call.
func (w *Watch[K]) Begin(k K, now time.Time) {
	c := w.of[k]
	if c == nil {
		c = w.add(k)
	}
	if c.underWay == 0 {
		c.since = now
	}
	c.underWay++
	c.last = now
}

func (w *Watch[K]) add(k K) *calls {
	if w.of == nil {
		w.of = make(map[K]*calls)
	}
	if len(w.of) >= maxWatched {
		maps.DeleteFunc(w.of, func(_ K, c *calls) bool { return c.underWay == 0 })
	}
	c := new(calls)
	w.of[k] = c
	return c
}

// End notes that a call of Begin is over, and whether the controller answered it. It reports whether the controller was
// silent before and is now.
func (w *Watch[K]) End(k K, now time.Time, answered bool) (was, is bool) {
	c := w.of[k]
	was = c.silent
	switch {
	case answered:
		c.silent, c.since = false, now
	case now.Sub(c.since) >= Silence:
		c.silent = true
	}
	if c.underWay--; c.underWay == 0 && !c.silent {
		delete(w.of, k)
	}
	return was, c.silent
}

// Silent reports whether a controller has not answered for Silence.
func (w *Watch[K]) Silent(k K, now time.Time) bool {
	c := w.of[k]
	return c != nil && (c.silent || c.underWay > 0 && now.Sub(c.since) >= Silence)
}

// Try reports whether it is time to ask a silent controller again, and if so allows the caller to: nobody else may for
// TryEvery.
func (w *Watch[K]) Try(k K, now time.Time) bool {
	c := w.of[k]
	if c == nil || now.Sub(c.last) < TryEvery {
		return false
	}
	c.last = now
	return true
}
