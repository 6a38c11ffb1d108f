package controller

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// push sends to every output host the lists that it has not confirmed, side by side. One that does not answer gets them
// with the next round.
func (h *Host) push() {
	if !h.shares.isComplete() {
		return
	}
	for _, m := range h.hosts.live("outputhost") {
		owner := catalog.HostRun{Host: m.ID, Run: m.Run}
		if h.shares.BeginPush(owner) && !h.tasks.Go(func(ctx context.Context) { h.pushTo(ctx, m, owner) }) {
			h.shares.EndPush(owner)
		}
	}
}

const (
	// longPush is from when on the lists of a call rest, for pushPause times as long as the call took: a list of tens of
	// thousands of shares takes half a second, and would be sent for each change of one share. Lists of other queues do
	// not wait for it.
	longPush  = 20 * time.Millisecond
	pushPause = 4
	// maxPushPause bounds for how long a change can wait.
	maxPushPause = time.Second
	// mostRefusals is how often a list is sent in one push to a host that names a newer one each time: another controller
	// may be raising it, too.
	mostRefusals = 3
)

// pushing is one push to an output host. One goroutine uses it.
type pushing struct {
	h       *Host
	to      membership.Host
	owner   catalog.HostRun
	rest    map[core.QueueID]time.Time // lists that were sent a moment ago, and until when they rest
	skip    map[core.QueueID]uint64    // counters of lists that are left to the next round: the host could not resume all
	refused map[core.QueueID]int
}

// pushTo sends until the host has confirmed all lists, or a call fails.
func (h *Host) pushTo(ctx context.Context, m membership.Host, owner catalog.HostRun) {
	p := &pushing{
		h: h, to: m, owner: owner,
		rest: make(map[core.QueueID]time.Time), skip: make(map[core.QueueID]uint64), refused: make(map[core.QueueID]int),
	}
	for {
		now := h.deps.now()
		due, more := h.shares.Due(owner, p.skip, func(q core.QueueID) bool { return p.rests(q, now) })
		if !more {
			return
		}
		err := error(nil)
		if len(due) > 0 || !h.shares.WasTold(owner) {
			err = p.send(ctx, due)
		} else {
			p.wait(ctx, now)
		}
		if err != nil || ctx.Err() != nil {
			h.shares.EndPush(owner)
			if err != nil {
				h.log.Debug("an output host did not take its lists of shares", "host", m.ID, "err", err)
			}
			return
		}
	}
}

// rests reports whether the list of a queue stays for later. It is asked with the shares' mutex held: it must not wait
// for actions, which a hand-over holds while it asks the shares.
func (p *pushing) rests(queue core.QueueID, now time.Time) bool {
	return now.Before(p.rest[queue]) || !p.h.mayTell(queue)
}

// wait until the first of the lists has rested, or others changed.
func (p *pushing) wait(ctx context.Context, now time.Time) {
	first := now.Add(maxPushPause)
	for queue, until := range p.rest {
		if !until.After(now) {
			delete(p.rest, queue)
		} else if until.Before(first) {
			first = until
		}
	}
	select {
	case <-time.After(first.Sub(now)):
	case <-p.h.shares.Changed(p.owner):
	case <-ctx.Done():
	}
}

// send the lists of these queues, a page in each call. With the last page of the first time the host hears that these
// are all.
func (p *pushing) send(ctx context.Context, queues []core.QueueID) error {
	left := make([]catalog.QueueVersion, len(queues))
	for i, queue := range queues {
		left[i].Queue = queue
	}
	for {
		page := p.h.page(p.owner, left)
		left = left[page.done:]
		all := len(left) == 0 && !p.h.shares.WasTold(p.owner)
		began := p.h.deps.now()
		if err := p.call(ctx, page, all); err != nil {
			return err
		}
		if took := p.h.deps.now().Sub(began); took > longPush {
			for _, q := range page.queues {
				p.rest[q] = began.Add(took + min(pushPause*took, maxPushPause))
			}
		}
		if all {
			p.h.shares.Told(p.owner)
		}
		if len(left) == 0 {
			return nil
		}
	}
}

// call sends a page, and notes what the host answers.
func (p *pushing) call(ctx context.Context, page listPage, all bool) error {
	cctx, cancel := context.WithTimeout(ctx, p.h.cfg.CallTimeout)
	defer cancel()
	run := p.owner.Run
	resp, err := p.h.deps.Peers.Output(p.to.Address).Assign(cctx, connect.NewRequest(&pb.AssignRequest{Run: run.ID[:], Lists: page.lists, Complete: all}))
	if err != nil {
		return convert.FromRPC(err)
	}
	if len(resp.Msg.Lists) != len(page.lists) {
		return core.Errorf(core.CodeInternal, "%d answers to %d lists", len(resp.Msg.Lists), len(page.lists))
	}
	for i, a := range resp.Msg.Lists {
		version, err := convert.ListVersion(page.lists[i].Version)
		if err != nil {
			return err
		}
		newest, err := convert.ListVersion(a.Newest)
		if err != nil {
			return err
		}
		queue := page.queues[i]
		counter := p.h.shares.Answered(p.owner, queue, version, newest, a.Failed == nil)
		switch {
		case newest != version && a.Failed == nil:
			if p.refused[queue]++; p.refused[queue] >= mostRefusals {
				p.skip[queue] = counter
			}
		case a.Failed != nil:
			p.skip[queue] = version.Counter
			p.h.log.Debug("an output host could not save or resume all shares of a queue", "host", p.to.ID, "queue", queue, "err", convert.ErrorFromProto(a.Failed))
		}
	}
	p.h.push() // the new owners of what was given away
	return nil
}
