package client

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// A settlement belongs to a delivery, not to a connection. While the stream of a delivery lives, its settlements go
// there; the settler takes those of streams that ended, those that a stream did not confirm before it ended, and those
// that a host refused because another host owns the extent now. It sends them with calls to a frontend, which finds the
// owner, and repeats them until the lock of the delivery would have ended.
type settler struct {
	con  *Consumer
	wake chan struct{} // capacity 1
	mu   struct {
		sync.Mutex
		queue   []settlement
		bytes   int // of texts and metadata
		calling int // settlements of the call under way
		over    bool
		flushes []chan struct{}
	}
}

// extentRef is an extent as a host named it. The token is the one from which core.DeliveryToken derives; "": the host
// gave none.
type extentRef struct {
	id    core.ExtentID
	token string
	moved bool // its settlements were taken from the stream; the stream's reader's own
}

// settlement is one verb for a run of deliveries; for one delivery, unless the verb is ack or return.
type settlement struct {
	verb     wire.FrameType
	extent   *extentRef
	run      wire.SeqRun
	delay    time.Duration // nack: negative for the group's backoff; extend: from now
	reason   string
	metadata string
	asked    int64 // on the consumer's clock: when it was asked for, or later
	until    int64 // on the consumer's clock: when the lock ends, as far as known
	repeated bool  // an earlier try may have been applied
}

const (
	// maxSettlements and maxSettlementBytes bound the settlements that wait for a frontend. Further ones
	// are refused as ErrUnavailable.
	maxSettlements     = 100_000
	maxSettlementBytes = 16 << 20
	// settleAtOnce is how many tokens a call takes, settleTimeout how long a frontend may take for it.
	settleAtOnce  = 1000
	settleTimeout = 5 * time.Second
	// settleLeast is for how long a settlement is tried whose lock is about to end: an ack counts after that, too.
	settleLeast = 10 * time.Second
	// returnPatience is for how long a return is tried while its lock lasts, and returnLeast for how long in any case: the
	// lock may have been extended. It saves a wait for the end of the lock. The shares of a host that dies have another
	// owner after three seconds or so, and a try may have begun just before that. An extent that was purged never has one,
	// and Close waits for that.
	returnPatience = 6 * time.Second
	returnLeast    = 2 * time.Second
)

// settleAgain spaces the calls while the owner of an extent is not known, or no frontend answers.
var settleAgain = core.Backoff{Min: 100 * time.Millisecond, Factor: 2, Max: 2 * time.Second, Jitter: 0.3}

func newSettler(c *Consumer) *settler { return &settler{con: c, wake: make(chan struct{}, 1)} }

// add takes settlements. Those of an extent without a token, and those for which there is no room, are refused.
func (s *settler) add(all ...settlement) {
	var lost []settlement
	s.mu.Lock()
	for _, x := range all {
		size := len(x.reason) + len(x.metadata)
		if x.extent == nil || x.extent.token == "" || s.mu.over || len(s.mu.queue) >= maxSettlements || s.mu.bytes+size > maxSettlementBytes {
			lost = append(lost, x)
			continue
		}
		if x.verb == wire.TypeReturn {
			x.until = x.asked + min(max(x.until-x.asked, int64(returnLeast)), int64(returnPatience))
		} else {
			x.until = max(x.until, x.asked+int64(settleLeast))
		}
		s.mu.queue = append(s.mu.queue, x)
		s.mu.bytes += size
	}
	s.mu.Unlock()
	signal(s.wake)
	for _, x := range lost {
		s.refuse(x, core.Errorf(core.CodeUnavailable, "the connection of the delivery was lost, and the settlement cannot be sent on another one; the message comes again"))
	}
}

// refuse tells the owner of a settlement that it was not, or may not have been, applied.
func (s *settler) refuse(x settlement, err error) {
	if x.extent == nil {
		return
	}
	for i := range x.run.Count {
		s.con.refusedSettlement(x.verb, core.Receipt{Extent: x.extent.id, Seq: x.run.Base + core.Seq(i)}, int(x.run.Attempt), err)
	}
}

// run sends what was added until ctx ends.
func (s *settler) run(ctx context.Context) {
	defer s.end()
	for failures := 0; ; {
		batch := s.next()
		if len(batch) == 0 {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		again := s.call(ctx, batch)
		s.answered(again)
		if ctx.Err() != nil {
			return
		}
		if len(again) == 0 {
			failures = 0
			continue
		}
		failures++
		pause(ctx, waitBetween(settleAgain.Delay(failures, rand.Float64()), again, s.con.now()))
	}
}

// waitBetween is the pause before settlements are tried again: d, but not past the end of any of them, so that Close
// waits no longer than it has to. Ends that follow one another make no more calls than the first failures do.
func waitBetween(d time.Duration, again []settlement, now int64) time.Duration {
	for _, x := range again {
		d = min(d, max(time.Duration(x.until-now), settleAgain.Min))
	}
	return d
}

func (s *settler) end() {
	s.mu.Lock()
	s.mu.over = true
	s.mu.queue, s.mu.calling = nil, 0
	flushes := s.takeFlushesLocked()
	s.mu.Unlock()
	for _, f := range flushes {
		close(f)
	}
}

// like reports whether one call can carry both.
func (x *settlement) like(o *settlement) bool {
	return x.verb == o.verb && x.delay == o.delay && x.reason == o.reason && x.metadata == o.metadata
}

// continues reports whether x for seq continues the run of o.
func (o *settlement) continues(x *settlement, seq core.Seq) bool {
	return o.like(x) && o.run.Attempt == x.run.Attempt && o.run.Base+core.Seq(o.run.Count) == seq
}

// next takes what goes with the first settlement that waits, at most settleAtOnce deliveries.
func (s *settler) next() (batch []settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := uint32(settleAtOnce)
	rest := s.mu.queue[:0]
	for _, x := range s.mu.queue {
		if room == 0 || len(batch) > 0 && !x.like(&batch[0]) {
			rest = append(rest, x)
			continue
		}
		part := x
		part.run.Count = min(part.run.Count, room)
		if left := x.run.Count - part.run.Count; left > 0 {
			x.run.Base, x.run.Count = x.run.Base+core.Seq(part.run.Count), left
			rest = append(rest, x)
		} else {
			s.mu.bytes -= len(x.reason) + len(x.metadata)
		}
		room -= part.run.Count
		batch = append(batch, part)
	}
	clear(s.mu.queue[len(rest):])
	s.mu.queue, s.mu.calling = rest, len(batch)
	return batch
}

// answered puts what is to be tried again before the rest.
func (s *settler) answered(again []settlement) {
	s.mu.Lock()
	for _, x := range again {
		s.mu.bytes += len(x.reason) + len(x.metadata)
	}
	s.mu.queue, s.mu.calling = append(s.mu.queue, again...), 0 // behind those of extents that may have an owner
	var flushes []chan struct{}
	if len(s.mu.queue) == 0 {
		flushes = s.takeFlushesLocked()
	}
	s.mu.Unlock()
	for _, f := range flushes {
		close(f)
	}
}

func (s *settler) takeFlushesLocked() []chan struct{} {
	flushes := s.mu.flushes
	s.mu.flushes = nil
	return flushes
}

// flush waits until nothing waits.
func (s *settler) flush(ctx context.Context) error {
	s.mu.Lock()
	if s.mu.over || len(s.mu.queue)+s.mu.calling == 0 {
		s.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	s.mu.flushes = append(s.mu.flushes, done)
	s.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call settles a batch, deals with what has an outcome, and answers what is to be tried again.
func (s *settler) call(ctx context.Context, batch []settlement) (again []settlement) {
	tokens := make([]string, 0, settleAtOnce)
	of := make(map[string]settlement, settleAtOnce) // one delivery each
	for _, x := range batch {
		for i := range x.run.Count {
			one := x
			one.run.Base, one.run.Count = x.run.Base+core.Seq(i), 1
			token := core.DeliveryToken(x.extent.token, one.run.Base, one.run.Attempt)
			if _, twice := of[token]; !twice {
				tokens = append(tokens, token)
			}
			of[token] = one
		}
	}
	cctx, cancel := context.WithTimeout(ctx, settleTimeout)
	failures, err := s.con.c.settleAs(cctx, batch[0], tokens)
	cancel()
	now := s.con.now()
	outcome := func(token string, err error) {
		x, known := of[token]
		if !known {
			return
		}
		delete(of, token)
		if again = append(again, x); !s.retry(&again[len(again)-1], err, now) {
			again = again[:len(again)-1]
		}
	}
	for _, f := range failures {
		outcome(f.GetToken(), convert.ErrorFromProto(f.GetError()))
	}
	for _, token := range tokens {
		if err != nil {
			outcome(token, err)
		} else if x, applied := of[token]; applied && x.verb == wire.TypeExtend {
			s.con.extended(core.Receipt{Extent: x.extent.id, Seq: x.run.Base}, int(x.run.Attempt), x.asked+int64(x.delay))
		}
	}
	return again
}

// retry reports whether a settlement that failed is to be tried again; if not it has been dealt with.
func (s *settler) retry(x *settlement, err error, now int64) bool {
	switch core.CodeOf(err).Class() {
	case core.ClassUnknown:
		x.repeated = true
	case core.ClassRetryable, core.ClassThrottled:
	default:
		if errors.Is(err, ErrStale) && x.repeated && x.verb != wire.TypeExtend {
			return false // settled before: by this consumer
		}
		s.refuse(*x, err)
		return false
	}
	if now < x.until {
		return true
	}
	if x.repeated {
		err = core.Errorf(core.CodeUnknown, "the settlement may or may not have been applied before the lock ended: %w", err)
	} else {
		err = core.Errorf(core.CodeStale, "the settlement could not be sent before the lock ended; the message comes again: %w", err)
	}
	s.refuse(*x, err)
	return false
}

// settleAs makes the call of a settlement's verb for tokens.
func (c *Client) settleAs(ctx context.Context, like settlement, tokens []string) ([]*pb.SettleResponse_Failure, error) {
	var res *pb.SettleResponse
	var err error
	switch like.verb {
	case wire.TypeAck:
		res, err = repeat(ctx, c, c.msgs.Ack, &pb.AckRequest{Tokens: tokens})
	case wire.TypeReturn:
		res, err = repeat(ctx, c, c.msgs.Nack, &pb.NackRequest{Tokens: tokens, Unseen: true})
	case wire.TypeNack:
		req := &pb.NackRequest{Tokens: tokens, Reason: reasonText(like.reason), Metadata: []byte(like.metadata)}
		if like.delay >= 0 {
			req.Delay = delayToProto(like.delay)
		}
		res, err = repeat(ctx, c, c.msgs.Nack, req)
	case wire.TypeReject:
		res, err = repeat(ctx, c, c.msgs.Reject, &pb.RejectRequest{Tokens: tokens, Reason: cmp.Or(reasonText(like.reason), "no reason was given")})
	default:
		res, err = repeat(ctx, c, c.msgs.Extend, &pb.ExtendRequest{Tokens: tokens, By: delayToProto(max(like.delay, core.MinLockTimeout))})
	}
	return res.GetFailures(), err
}
