package frontend

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/frontend/cancels"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

const (
	maxTokens = 1000 // in one call
	// keysEvery bounds how often a token that does not open has the keys read again.
	keysEvery = 5 * time.Second
)

// Ack settles messages as done.
func (s *service) Ack(ctx context.Context, req *connect.Request[pb.AckRequest]) (*connect.Response[pb.SettleResponse], error) {
	return s.settle(ctx, &pb.SettleRequest{Verb: "ack", Tokens: req.Msg.GetTokens()})
}

// Nack gives messages back, at once, after a delay, or after the group's backoff when none is given.
func (s *service) Nack(ctx context.Context, req *connect.Request[pb.NackRequest]) (*connect.Response[pb.SettleResponse], error) {
	if d := req.Msg.GetDelay(); d != nil {
		if err := checkDuration("delay", d, 0, core.MaxNackDelay); err != nil {
			return nil, err
		}
	}
	if req.Msg.GetUnseen() {
		return s.settle(ctx, &pb.SettleRequest{Verb: "return", Tokens: req.Msg.GetTokens()})
	}
	return s.settle(ctx, &pb.SettleRequest{Verb: "nack", Tokens: req.Msg.GetTokens(), Delay: req.Msg.GetDelay(), Reason: req.Msg.GetReason(), Metadata: req.Msg.GetMetadata()})
}

// Reject sends messages to the dead letter queue at once.
func (s *service) Reject(ctx context.Context, req *connect.Request[pb.RejectRequest]) (*connect.Response[pb.SettleResponse], error) {
	if req.Msg.GetReason() == "" {
		return nil, core.Errorf(core.CodeBadArgument, "reason is missing; say why the messages are rejected, it is kept with them")
	}
	return s.settle(ctx, &pb.SettleRequest{Verb: "reject", Tokens: req.Msg.GetTokens(), Reason: req.Msg.GetReason()})
}

// Extend moves the end of messages' locks.
func (s *service) Extend(ctx context.Context, req *connect.Request[pb.ExtendRequest]) (*connect.Response[pb.SettleResponse], error) {
	if err := checkDuration("extension", req.Msg.GetBy(), core.MinLockTimeout, core.MaxLockTimeout); err != nil {
		return nil, err
	}
	return s.settle(ctx, &pb.SettleRequest{Verb: "extend", Tokens: req.Msg.GetTokens(), Delay: req.Msg.GetBy()})
}

func checkDuration(name string, d *durationpb.Duration, least, most time.Duration) error {
	if v := d.AsDuration(); d.CheckValid() != nil || v < least || v > most {
		return core.Errorf(core.CodeBadArgument, "%s %s is not in %s … %s", name, core.FormatDuration(v), core.FormatDuration(least), core.FormatDuration(most))
	}
	return nil
}

// settle hands the tokens on to the owners of their shares, and lists those that were refused or whose outcome is not
// known.
func (s *service) settle(ctx context.Context, req *pb.SettleRequest) (*connect.Response[pb.SettleResponse], error) {
	switch {
	case len(req.Tokens) < 1 || len(req.Tokens) > maxTokens:
		return nil, core.Errorf(core.CodeBadArgument, "%d tokens in one call; 1 to %d are allowed", len(req.Tokens), maxTokens)
	case len(req.Reason) > wire.MaxReason:
		return nil, core.Errorf(core.CodeTooLarge, "reason has %d bytes; at most %d are allowed", len(req.Reason), wire.MaxReason)
	case len(req.Metadata) > core.MaxMetadata:
		return nil, core.Errorf(core.CodeTooLarge, "metadata has %d bytes; at most %d are allowed", len(req.Metadata), core.MaxMetadata)
	}
	var out []*pb.SettleResponse_Failure
	tokens := deliverytoken.Distinct(req.Tokens)
	began := s.now()
	gone := deletions{s: s}
	for pause := time.Duration(0); ; pause = max(settlePause, 2*pause) {
		failures := s.settleOnce(ctx, req, tokens)
		again := s.now().Sub(began) < settleRetry && ctx.Err() == nil
		tokens = nil
		for _, f := range failures {
			code := core.Code(f.GetError().GetCode())
			if code != core.CodeMoved {
				pause = max(settlePause, pause)
			}
			gone.explain(ctx, f)
			if again && elsewhereCode(core.Code(f.GetError().GetCode())) {
				tokens = append(tokens, f.GetToken())
			} else {
				out = append(out, f)
			}
		}
		if len(tokens) == 0 {
			return connect.NewResponse(&pb.SettleResponse{Failures: out}), nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Shares move when an output host dies: tokens that their owner did not take are tried again at the next one, for a
// moment. If all of them have only moved, the first retry comes at once, because the frontend may have asked a former
// owner.
const (
	settlePause = 50 * time.Millisecond
	settleRetry = 2 * time.Second
)

// elsewhereCode is the code of a settlement that was certainly not applied, and that another owner may take.
func elsewhereCode(code core.Code) bool {
	return code == core.CodeMoved || code == core.CodeDraining || code == core.CodeUnavailable
}

// settleOnce hands each token to the owner of its share, and lists those that were not applied. The owners of these are
// read anew for the next try.
func (s *service) settleOnce(ctx context.Context, req *pb.SettleRequest, tokens []string) []*pb.SettleResponse_Failure {
	began := s.now()
	parts, out := s.partition(ctx, tokens)
	failures := make([][]*pb.SettleResponse_Failure, len(parts))
	var g errgroup.Group
	g.SetLimit(fanOut)
	for i, p := range parts {
		g.Go(func() error {
			part := &pb.SettleRequest{Verb: req.Verb, Tokens: p.tokens, Delay: req.Delay, Reason: req.Reason, Metadata: req.Metadata}
			resp, err := askOne(ctx, p.host, askTimeout, part, func(addr string) rpc[pb.SettleRequest, pb.SettleResponse] { return s.peers.Output(addr).Settle })
			if err == nil {
				failures[i] = resp.GetFailures()
				for _, f := range failures[i] {
					if sh, ok := p.shares[f.GetToken()]; ok && elsewhereCode(core.Code(f.GetError().GetCode())) {
						s.known.owners.Outdate(sh, began)
					}
				}
				return nil
			}
			err = unsure(err)
			err = core.Errorf(core.CodeOf(err), "%s %s: %w", roleOutput, p.host.ID, err)
			for _, t := range p.tokens {
				s.known.owners.Outdate(p.shares[t], began)
				failures[i] = append(failures[i], failure(t, err))
			}
			return nil
		})
	}
	g.Wait() // no function fails
	for _, f := range failures {
		out = append(out, f...)
	}
	return out
}

// part is the tokens that one output host settles.
type part struct {
	host   membership.Host
	tokens []string
	shares map[string]share // by token
}

// partition opens the tokens and sorts them by owner; those that have none, or are none, fail.
func (s *service) partition(ctx context.Context, tokens []string) (parts []part, failures []*pb.SettleResponse_Failure) {
	byToken := make(map[string]share, len(tokens))
	var all []share // each once
	seen := make(map[share]bool)
	for _, text := range tokens {
		t, err := s.openToken(ctx, text)
		if err != nil {
			failures = append(failures, failure(text, err))
			continue
		}
		sh := share{t.Group, t.Extent}
		byToken[text] = sh
		if !seen[sh] {
			seen[sh] = true
			all = append(all, sh)
		}
	}
	var owners map[share]membership.Host
	var failed map[share]error
	if len(s.members.Hosts(roleOutput)) != 1 { // the only one settles all
		owners, failed = s.ownersOf(ctx, all)
	}
	at := make(map[core.HostID]int) // index in parts
	for _, text := range tokens {
		sh, ok := byToken[text]
		if !ok {
			continue
		}
		h, owned := owners[sh]
		if err := failed[sh]; err != nil {
			failures = append(failures, failure(text, err))
			continue
		}
		if !owned { // any host knows what became of the share
			live := s.ranked(roleOutput, sh.group.ID)
			if len(live) == 0 {
				failures = append(failures, failure(text, core.Errorf(core.CodeUnavailable, "no output host is known; try again")))
				continue
			}
			h = live[0]
		}
		i, ok := at[h.ID]
		if !ok {
			i = len(parts)
			at[h.ID] = i
			parts = append(parts, part{host: h, shares: make(map[string]share)})
		}
		parts[i].tokens = append(parts[i].tokens, text)
		parts[i].shares[text] = sh
	}
	return parts, failures
}

func failure(token string, err error) *pb.SettleResponse_Failure {
	return &pb.SettleResponse_Failure{Token: token, Error: convert.ErrorToProto(err)}
}

// openToken opens a token. One that does not open may be sealed with a key that is newer than those read last.
func (s *service) openToken(ctx context.Context, text string) (deliverytoken.Token, error) {
	keys := s.keys.Load()
	t, err := deliverytoken.Open(keys.Keys, text)
	if err == nil || len(text) != deliverytoken.Len && len(text) != deliverytoken.DerivedLen || s.now().Sub(keys.read) < keysEvery {
		return t, err
	}
	if s.loadKeys(ctx) != nil {
		return t, err
	}
	return deliverytoken.Open(s.keys.Load().Keys, text)
}

// tokenKeys are the cluster's keys and when they were read.
type tokenKeys struct {
	deliverytoken.Keys
	read time.Time
}

// loadKeys reads the cluster's keys, and makes them in a new cluster.
func (s *service) loadKeys(ctx context.Context) error {
	now := s.now()
	keys, err := metadata.TokenKeys(ctx, s.meta, now)
	if err == nil {
		s.keys.Store(&tokenKeys{keys, now})
	}
	return err
}

// maxReceipts is how many messages one call takes back.
const maxReceipts = 100

// Cancel cancels delayed messages, each for all groups that have not got it. Its answers stay true: see core/cancel.
func (s *service) Cancel(ctx context.Context, req *connect.Request[pb.CancelRequest]) (*connect.Response[pb.CancelResponse], error) {
	receipts := req.Msg.GetReceipts()
	if len(receipts) < 1 || len(receipts) > maxReceipts {
		return nil, core.Errorf(core.CodeBadArgument, "%d receipts in one call; 1 to %d are allowed", len(receipts), maxReceipts)
	}
	path := req.Msg.GetQueue()
	if path != "" {
		var err error
		if path, err = core.ParseAnyQueuePath(path); err != nil {
			return nil, err
		}
	}
	out := &pb.CancelResponse{}
	byExtent := make(map[core.ExtentID][]cancelled)
	for _, text := range receipts {
		res := &pb.CancelResult{Receipt: text}
		out.Results = append(out.Results, res)
		if at, err := core.ParseReceipt(text); err != nil {
			res.Error = convert.ErrorToProto(err)
		} else {
			byExtent[at.Extent] = append(byExtent[at.Extent], cancelled{at, res})
		}
	}
	var g errgroup.Group
	g.SetLimit(fanOut)
	for id, all := range byExtent {
		g.Go(func() error {
			if err := s.cancelOf(ctx, path, id, all); err != nil {
				for _, x := range all {
					if x.res.Error == nil {
						x.res.Error = convert.ErrorToProto(err)
					}
				}
			}
			return nil
		})
	}
	g.Wait() // no function fails
	return connect.NewResponse(out), nil
}

// cancelCopies takes back the copies of a cancelled message of a retry queue: an append whose outcome was not known is
// repeated, so there may be two of one.
func (s *service) cancelCopies(ctx context.Context, path string, at core.Receipt, due time.Time) error {
	queue, name, _ := core.SplitRetryPath(path)
	_, g, err := s.group(ctx, queue, name)
	if err != nil {
		return core.Partly(err, "it is cancelled, but not known whether there are two of it", "cancel it again")
	}
	req := &pb.ListRetryQueueRequest{Queue: queue, Group: name, Until: timestamppb.New(due)}
	found, err := ask(ctx, s.ranked(roleOutput, g.ID.ID), roleOutput, req, func(addr string) rpc[pb.ListRetryQueueRequest, pb.ListRetryQueueResponse] {
		return s.peers.Output(addr).ListRetryQueue
	})
	if err != nil {
		return core.Partly(err, "it is cancelled, but not known whether there are two of it", "cancel it again")
	}
	all := found.GetMessages()
	mine := slices.IndexFunc(all, func(p *pb.RetryQueueMessage) bool { return p.GetReceipt() == at.String() })
	for i, p := range all {
		if mine < 0 || i == mine || p.GetOrigin() != all[mine].GetOrigin() || p.GetAttempts() != all[mine].GetAttempts() {
			continue
		}
		other, err := core.ParseReceipt(p.GetReceipt())
		if err != nil {
			return err
		}
		e, err := s.findExtent(ctx, other.Extent)
		if err == nil {
			c := cancels.Canceller{Meta: s.meta, Cluster: timerCluster{s, core.MergedInto(g.Queue, g.ID)}, Now: s.now}
			_, err = c.Cancel(ctx, e, []cancels.Message{{Seq: other.Seq, Due: due, Enqueued: p.GetDelayedSince().AsTime()}})
		}
		if err != nil {
			return core.Partly(err, fmt.Sprintf("it is cancelled, but not the second one of it, %s", other), "cancel it again")
		}
	}
	return nil
}

// cancelled is a receipt of a call, and what is answered for it.
type cancelled struct {
	at  core.Receipt
	res *pb.CancelResult
}

// cancelOf takes messages of one extent back. Its error is for all that have none of their own.
func (s *service) cancelOf(ctx context.Context, path string, id core.ExtentID, all []cancelled) error {
	l, path, err := s.timersOf(ctx, path, id)
	if err != nil {
		return err
	}
	var good []cancelled
	var messages []cancels.Message
	for _, x := range all {
		m, err := s.timer(ctx, path, l, x.at)
		if err != nil {
			x.res.Error = convert.ErrorToProto(err)
			continue
		}
		good, messages = append(good, x), append(messages, m)
	}
	if len(messages) == 0 {
		return nil
	}
	c := cancels.Canceller{Meta: s.meta, Cluster: timerCluster{s, l.Seal.Home}, Now: s.now}
	results, err := c.Cancel(ctx, l.Extent, messages)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "cancel messages of extent %s: %w", id, err)
	}
	if _, _, retries := core.SplitRetryPath(path); retries {
		for i, x := range good {
			if err := s.cancelCopies(ctx, path, x.at, messages[i].Due); err != nil {
				x.res.Error = convert.ErrorToProto(err)
			}
		}
	}
	for i, x := range good {
		for _, r := range results {
			x.res.Groups = append(x.res.Groups, &pb.CancelledFor{Group: r.Group, Outcome: string(r.Outcomes[i])})
		}
	}
	return nil
}
