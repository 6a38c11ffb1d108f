package publish

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// lackFor is how long input hosts refuse records for want of a majority of the metadata, or of space on the stores,
	// before these fail. A shorter lack fails nothing.
	lackFor = 2 * time.Second
	// lackGap: refusals that are further apart are of different lacks.
	lackGap = 4 * time.Second
)

// lacks reports whether an error says that something is lacking which publishers should hear of soon: it takes a person
// to bring it back.
func lacks(err error) bool {
	code := core.CodeOf(err)
	return code == core.CodeNoMajority || code == core.CodeNoSpace
}

// lack is since when input hosts refuse for want of something. Nothing was stored meanwhile.
type lack struct {
	known       bool
	since, last int64 // on the publisher's clock: of the first refusal, and of the last
}

// lackedLocked takes in why records were refused, or no session was made. When something has been lacking for lackFor,
// it fails the records that wait and were certainly not stored, and those who wait in Connect get the error that is
// returned, if any do. A record that may be stored is tried until its time is up, as for any other reason.
func (p *Publisher) lackedLocked(why error, now int64) (tell []chan error, err error) {
	if !lacks(why) {
		return nil, nil
	}
	l := &p.mu.lack
	if !l.known || now-l.last > int64(lackGap) {
		*l = lack{known: true, since: now}
	}
	l.last = now
	if over := l.since + int64(lackFor); now < over {
		p.mu.pausedUntil = max(min(p.mu.pausedUntil, over), p.mu.throttled) // the refusal that counts comes soon after that
		return nil, nil
	}
	err = core.Errorf(core.CodeOf(why), "no input host of %s took the message: %w", p.cfg.Queue, why)
	for _, b := range p.mu.queue {
		p.failUnsentLocked(b, err)
	}
	p.mu.queue = slices.DeleteFunc(p.mu.queue, dropped)
	if b := p.mu.current; b != nil {
		if p.failUnsentLocked(b, err); dropped(b) {
			p.mu.current = nil
		}
	}
	tell, p.mu.connects = p.mu.connects, nil
	return tell, err
}

// failUnsentLocked fails the records of a batch that no try can have stored.
func (p *Publisher) failUnsentLocked(b *batch, err error) {
	for i := range b.slots {
		if b.slots[i].state == 0 {
			p.settleLocked(b, i, i+1, core.Receipt{}, err, false)
		}
	}
}
