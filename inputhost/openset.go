package inputhost

import (
	"slices"
	"time"

	"github.com/columbamq/columba/inputhost/writer"
)

// slot is an open extent of a queue.
type slot struct {
	w       *writer.Writer
	opened  time.Time
	streams int  // whose home it is
	replace bool // full or old: it goes on until it has a successor
	gone    bool // takes nothing more
	bytes   uint64
	looked  time.Time
}

// openSet is a queue's open extents, and which of them each publisher's stream uses: one, its home, until that ends. So
// a stream's batches do not get smaller with the number of extents. Its queue guards it.
//
//	streams of a slot = those publishers of the queue whose home it is
type openSet struct {
	slots []*slot
}

// home is the extent that a stream uses, nil when none is open. A stream without one gets the one with the fewest
// streams. Without a stream it is any, rather one that lasts.
func (o *openSet) home(p *publisher) *slot {
	if p != nil {
		if p.home != nil && !p.home.gone {
			return p.home
		}
		p.home = nil
	}
	var best *slot
	for _, s := range o.slots {
		if best == nil || s.replace == best.replace && s.streams < best.streams || best.replace && !s.replace {
			best = s
		}
	}
	if best != nil && p != nil && !p.left {
		best.streams++
		p.home = best
	}
	return best
}

// leave takes a stream out.
func (o *openSet) leave(p *publisher) {
	p.left = true
	if p.home != nil {
		p.home.streams--
		p.home = nil
	}
}

// add takes an extent in, and moves as many streams to it as are its share.
func (o *openSet) add(w *writer.Writer, now time.Time, streams map[*publisher]struct{}) {
	s := &slot{w: w, opened: now, looked: now}
	o.slots = append(o.slots, s)
	lasting := 0
	for _, other := range o.slots {
		if !other.replace {
			lasting++
		}
	}
	share := len(streams) / lasting
	for p := range streams {
		if s.streams >= share {
			return
		}
		if from := p.home; from != nil && !from.gone && from.streams > share {
			from.streams--
			s.streams++
			p.home = s
		}
	}
}

// drop takes an extent out; its streams find another home when they need one.
func (o *openSet) drop(w *writer.Writer) (was bool) {
	i := slices.IndexFunc(o.slots, func(s *slot) bool { return s.w == w })
	if i < 0 {
		return false
	}
	o.slots[i].gone = true
	o.slots = slices.Delete(o.slots, i, i+1)
	return true
}

// lasting is how many are not to be replaced.
func (o *openSet) lasting() (n int) {
	for _, s := range o.slots {
		if !s.replace {
			n++
		}
	}
	return n
}

// markReplace notes that an extent wants a successor.
func (o *openSet) markReplace(w *writer.Writer) {
	for _, s := range o.slots {
		if s.w == w {
			s.replace = true
		}
	}
}

// replaced is one that wants a successor, nil if none does.
func (o *openSet) replaced() *slot {
	for _, s := range o.slots {
		if s.replace {
			return s
		}
	}
	return nil
}

// least is the extent with the fewest streams, of those that are not to be replaced.
func (o *openSet) least() (best *slot) {
	for _, s := range o.slots {
		if !s.replace && (best == nil || s.streams < best.streams) {
			best = s
		}
	}
	return best
}

// rates appends the bytes per second of each lasting extent since the last call.
func (o *openSet) rates(now time.Time, dst []float64) []float64 {
	for _, s := range o.slots {
		bytes := s.w.Bytes()
		if took := now.Sub(s.looked).Seconds(); took > 0 && !s.replace {
			dst = append(dst, float64(bytes-s.bytes)/took)
		}
		s.bytes, s.looked = bytes, now
	}
	return dst
}
