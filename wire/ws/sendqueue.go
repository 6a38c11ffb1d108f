package ws

import "slices"

// segment is a piece of what waits to be written.
type segment struct {
	b       []byte
	chunk   *Message // the pooled buffer b is in; nil when b is the caller's
	release func()   // of the caller's b, may be nil
	cost    int      // what it counts for in the bounds
	control int      // the part of cost that is control frames
	more    bool     // its last frame goes on in the next segment
}

// segmentCost is added to a segment's bytes so that many tiny ones are bounded, too.
const segmentCost = 64

// maxIdleSegments bounds the room for segments that an empty queue keeps.
const maxIdleSegments = 256

// chunkSize is the size of the buffers that copied frames share.
const chunkSize = 64 << 10

// sendQueue holds what waits, in order. Its owner guards it.
//
//	bytes + control = cost of the segments queued + cost of those taken and not yet settled
type sendQueue struct {
	segments []segment
	tail     *Message   // the chunk at the end, while it has room
	bytes    int        // without control frames
	control  int        // of control frames, which have room of their own
	waiting  []*pending // frames that found the queue full, first come first
}

// pending is a caller that waits for room.
type pending struct {
	header, body []byte
	release      func()
	done         chan error // buffered; nil: queued
}

// push queues a frame: header copied, body (may be nil) as it is.
func (q *sendQueue) push(header, body []byte, release func()) {
	owned := len(body) > 0 || release != nil
	if len(header) > 0 {
		q.bytes += q.copy(header, owned)
	}
	if owned {
		cost := len(body) + segmentCost
		q.segments = append(q.segments, segment{b: body, release: release, cost: cost})
		q.bytes += cost
	}
}

// pushControl queues a control frame, copied.
func (q *sendQueue) pushControl(frame []byte) {
	cost := q.copy(frame, false)
	q.control += cost
	q.segments[len(q.segments)-1].control += cost
}

// copy appends b to the segments and returns what it adds to their cost.
func (q *sendQueue) copy(b []byte, more bool) (cost int) {
	if len(b) > chunkSize/2 {
		m := newMessage(len(b))
		m.Bytes = append(m.Bytes, b...)
		q.segments = append(q.segments, segment{b: m.Bytes, chunk: m, cost: len(b) + segmentCost, more: more})
		return len(b) + segmentCost
	}
	if q.tail == nil || len(q.tail.store)-len(q.tail.Bytes) < len(b) {
		q.dropTail()
		q.tail = newMessage(chunkSize)
	}
	start := len(q.tail.Bytes)
	q.tail.Bytes = append(q.tail.Bytes, b...)
	if n := len(q.segments); n > 0 && q.segments[n-1].chunk == q.tail && !q.segments[n-1].more {
		last := &q.segments[n-1]
		last.b = last.b[:len(last.b)+len(b)]
		last.cost += len(b)
		last.more = more
		return len(b)
	}
	q.tail.Retain()
	q.segments = append(q.segments, segment{b: q.tail.Bytes[start:], chunk: q.tail, cost: len(b) + segmentCost, more: more})
	return len(b) + segmentCost
}

func (q *sendQueue) dropTail() {
	if q.tail != nil {
		q.tail.Release()
		q.tail = nil
	}
}

// take moves whole frames of up to MaxMessage bytes, but at least one frame, to dst.
func (q *sendQueue) take(dst []segment) []segment {
	taken, bytes := 0, 0
	for taken < len(q.segments) {
		end, frame := taken, 0
		for more := true; more; end++ {
			frame += len(q.segments[end].b)
			more = q.segments[end].more
		}
		if taken > 0 && bytes+frame > MaxMessage {
			break
		}
		taken, bytes = end, bytes+frame
	}
	dst = append(dst, q.segments[:taken]...)
	clear(q.segments[:taken])
	if taken < len(q.segments) {
		q.segments = q.segments[taken:]
		return dst
	}
	q.dropTail()
	if q.segments = q.segments[:0]; cap(q.segments) > maxIdleSegments {
		q.segments = nil
	}
	return dst
}

// settle takes written segments off the bounds and queues callers that waited; the owner tells those afterwards.
func (q *sendQueue) settle(cost, control, bound int) (admitted []*pending) {
	q.bytes -= cost - control
	q.control -= control
	for len(q.waiting) > 0 && q.bytes < bound {
		p := q.waiting[0]
		q.waiting[0], q.waiting = nil, q.waiting[1:]
		q.push(p.header, p.body, p.release)
		admitted = append(admitted, p)
	}
	return admitted
}

// forget removes a caller that stopped waiting; false when it no longer was.
func (q *sendQueue) forget(p *pending) bool {
	i := slices.Index(q.waiting, p)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// free gives back what a segment holds.
func (s *segment) free() {
	if s.chunk != nil {
		s.chunk.Release()
	}
	if s.release != nil {
		s.release()
	}
}
