package inputhost

import (
	"time"
)

// demandLimits say how many open extents a queue wants.
type demandLimits struct {
	least int           // while publishing
	most  int           // whatever the load
	rate  float64       // bytes per second that one extent is to take
	calm  time.Duration // of low load before one is given up
}

const (
	mostOpen   = 8
	calmBefore = 5 * time.Minute
	// comfort is the share of the other extents' room that the load must fit into before one is given up.
	comfort = 0.7
)

// demand is the rule of how many open extents a queue wants: more at once when one is over its rate, fewer after a calm
// time. It has no clock; its queue guards it.
type demand struct {
	want     int
	lowSince time.Time // zero: it is not low
}

// look takes the rates of the open extents and the number of streams, which share extents but do not spread over
// several, and reports whether one extent is to be given up.
func (d *demand) look(now time.Time, l demandLimits, rates []float64, streams int) (giveUp bool) {
	most := max(l.least, min(l.most, streams))
	d.want = min(max(d.want, l.least), most)
	total, over := 0.0, false
	for _, r := range rates {
		total += r
		over = over || r >= l.rate
	}
	if over && len(rates) >= d.want && d.want < most {
		d.want++
		d.lowSince = time.Time{}
		return false
	}
	if d.want == l.least || total >= comfort*l.rate*float64(d.want-1) {
		d.lowSince = time.Time{}
		return len(rates) > d.want
	}
	if d.lowSince.IsZero() {
		d.lowSince = now
	}
	if now.Sub(d.lowSince) < l.calm {
		return false
	}
	d.want--
	d.lowSince = now
	return len(rates) > d.want
}
