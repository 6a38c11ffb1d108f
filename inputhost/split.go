package inputhost

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// Where a record goes, by when it is due: one of the timer extents by its horizon, or one of these.
const (
	nearLane   = 0                 // of the next horizon
	atOnceLane = core.Horizons     // it is due: to a log extent
	tooFarLane = core.Horizons + 1 // beyond any horizon: refused
	allLanes   = core.Horizons + 2
)

// laneOf a valid record at an instant in unix ms, and when it is due. One that is due already goes to the lane atOnce.
// Its delay, if it has one, becomes a deliver_at by that instant.
func laneOf(record []byte, now int64, atOnce int) (lane int, due int64) {
	due = wire.FixDeliverAt(record, now)
	if due <= now {
		return atOnce, due
	}
	if i, ok := core.HorizonOf(due - now); ok {
		return i, due
	}
	return tooFarLane, due
}

// part is what a chunk has for one lane.
type part struct {
	count uint32
	bytes int
	due   int64 // the latest
	runs  []writer.Run
	at    int // where its next record goes, while they are sorted
}

// add takes the record of a number in.
func (p *part) add(number uint64, size int, due int64) {
	p.count++
	p.bytes += size
	p.due = max(p.due, due)
	if n := len(p.runs); n > 0 && p.runs[n-1].First+uint64(p.runs[n-1].Count) == number {
		p.runs[n-1].Count++
		return
	}
	p.runs = append(p.runs, writer.Run{First: number, Count: 1})
}

// split makes, of a chunk of which some records are timed, one chunk for each lane that has any. Each record is in one
// of them, in the order they came; the chunk's hold passes to them.
func split(c writer.Chunk, now time.Time, atOnce int) (out [allLanes]writer.Chunk) {
	var parts [allLanes]part
	ms := now.UnixMilli()
	number, used := c.First, 0
	for rest := c.Records; len(rest) > 0; number++ {
		record, after, err := wire.NextRecord(rest)
		if err != nil { // they were checked
			break
		}
		lane, due := laneOf(record, ms, atOnce)
		if parts[lane].count == 0 {
			used++
		}
		parts[lane].add(number, len(record), due)
		rest = after
	}
	if used > 1 {
		m := sortParts(c.Records, &parts, ms, atOnce)
		for range used - 1 {
			m.Retain()
		}
		c.Hold.Release()
		c.Records, c.Hold = m.Bytes, m
	}
	for lane := range parts {
		p := &parts[lane]
		if p.count == 0 {
			continue
		}
		x := c
		x.Count, x.First = p.count, p.runs[0].First
		if used > 1 {
			x.Records = c.Records[p.at-p.bytes : p.at : p.at]
		}
		if lane < core.Horizons || len(p.runs) > 1 {
			x.Part = &writer.Part{Runs: p.runs}
		}
		if lane < core.Horizons {
			x.Part.Due = p.due
		}
		out[lane] = x
	}
	return out
}

// sortParts is a copy of the records with those of each lane together; at of each is the end of its own.
func sortParts(records []byte, parts *[allLanes]part, ms int64, atOnce int) *ws.Message {
	m := ws.Copy(records)
	end := 0
	for lane := range parts {
		parts[lane].at = end
		end += parts[lane].bytes
	}
	for len(records) > 0 {
		record, rest, err := wire.NextRecord(records)
		if err != nil {
			break
		}
		lane, _ := laneOf(record, ms, atOnce)
		p := &parts[lane]
		p.at += copy(m.Bytes[p.at:], record)
		records = rest
	}
	return m
}

// publishTimed routes a chunk of which some records are timed. Records that are not due go to the timer extents, due
// ones to the log extents. So no consumer gets a message before its time. All of a retry queue go to timer extents,
// where output hosts find them by when they are due.
func (p *publisher) publishTimed(c writer.Chunk) {
	atOnce := atOnceLane
	if p.internal {
		atOnce = nearLane
	}
	p.s.h.inFlight.Add(-chunkCost) // each part counts instead
	for lane, x := range split(c, p.s.h.clock.stamp(c.Arrived), atOnce) {
		if x.Count == 0 {
			continue
		}
		p.s.h.inFlight.Add(chunkCost)
		switch {
		case lane == tooFarLane:
			p.Answer(x, writer.Refused(core.CodeBadArgument))
		case lane == atOnceLane:
			p.queue.publish(p, x)
		default:
			p.queue.publishTimers(lane, x)
		}
	}
}
