package inputhost

import (
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

const (
	// saidPatience is for how long publishers are left to wait after the controller has said that it cannot place an
	// extent: a store that was just lost or started may be all there is to it.
	saidPatience = 500 * time.Millisecond
	// openPatience is the same when nothing is known but that no extent could be opened.
	openPatience = 3 * time.Second
	// majorityPatience is the same when no majority of the metadata answers. A controller says so for up to a second after
	// that is over. Publishers give up after two seconds of refusals; the first of these must not come at once, so that a
	// majority that is lost for less than two seconds fails nothing.
	majorityPatience = metadata.MajorityWait
	// outageOver: after so long without a try that failed, the next one begins another outage. It is longer than a try
	// takes.
	outageOver = callTimeout + openTimeout + time.Second
	// tellOutage is how often the log tells of an outage that goes on.
	tellOutage = time.Minute
	// unsentMost is how long anything waits for an extent at most. It is less than publishers wait for an answer: what was
	// not sent to any store is refused before they have to count it as perhaps stored.
	unsentMost = 8 * time.Second
)

// outage is for how long, and why, a queue gets no open extent. It has no clock; its queue guards it.
type outage struct {
	since time.Time // the beginning of the first try that failed; zero: none did
	last  time.Time // a try failed
	said  bool      // the controller itself says that there cannot be one
	why   error
	told  time.Time // the log
}

// failed notes that a try came to nothing. It reports whether the log is to tell: when an outage begins, and each
// minute of a long one.
func (o *outage) failed(began, now time.Time, why error, said bool) (tell bool) {
	begins := o.since.IsZero() || began.Sub(o.last) > outageOver
	if begins {
		o.since = began
	}
	o.last, o.why, o.said = now, why, said
	if tell = begins || now.Sub(o.told) >= tellOutage; tell {
		o.told = now
	}
	return tell
}

// lasts reports whether it goes on for so long that nothing is to wait for its end.
func (o *outage) lasts(now time.Time) bool {
	patience := openPatience
	switch {
	case core.CodeOf(o.why) == core.CodeNoMajority:
		patience = majorityPatience
	case o.said:
		patience = saidPatience
	}
	return o.recent(now) && now.Sub(o.since) >= patience
}

// recent: it may go on still.
func (o *outage) recent(now time.Time) bool {
	return !o.since.IsZero() && now.Sub(o.last) <= outageOver
}

// probeLocked reports why nothing is to wait for an extent at all: tries fail, and nobody knows how long the next one
// takes. It has one made.
func (q *queue) probeLocked(now time.Time) error {
	o := &q.mu.outage
	if q.ordered || len(q.mu.open.slots) > 0 || o.said || !o.lasts(now) {
		return nil
	}
	q.mu.probe = true
	q.openLocked()
	return o.why
}

// refuseFor answers chunks that are certainly not stored, and tells their publishers why.
func refuseFor(chunks []writer.Chunk, why error) {
	for _, c := range chunks {
		if !c.From.Gone() {
			c.From.(*publisher).explain(why)
		}
	}
	refuse(chunks, core.CodeOf(why))
}

// explain tells the publisher why its records are refused, unless that is what it was told last.
func (p *publisher) explain(why error) {
	text := why.Error()
	if last := p.explained.Swap(&text); last != nil && *last == text {
		return
	}
	body, err := proto.Marshal(&pb.Throttled{Reason: convert.ErrorToProto(why)})
	if err == nil {
		p.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeThrottled, p.stream, body))
	}
}
