package client

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// PublishResult is the outcome of one message of PublishOnce.
type PublishResult struct {
	Receipt Receipt
	Err     error
}

// Pulled is a message that Pull delivered. Its token settles it, from any process.
type Pulled struct {
	Token    string
	Receipt  core.Receipt
	Attempt  int
	Enqueued time.Time
	Message  Message
	Metadata []byte // that an earlier Nack gave the message
}

// TokenError is a token that was refused, and why.
type TokenError struct {
	Token string
	Err   error
}

// PublishOnce publishes at most 1,000 messages in one call, without a Publisher and without trying again. Use it for
// single messages. The results are in the order of the messages. ErrUnknownOutcome: the answer was lost, and the
// messages may or may not be stored.
func (c *Client) PublishOnce(ctx context.Context, queue string, messages ...Message) ([]PublishResult, error) {
	req := &pb.PublishRequest{Queue: queue}
	for _, m := range messages {
		req.Messages = append(req.Messages, messageToProto(m))
	}
	res, err := change(ctx, c, c.msgs.Publish, req)
	if err != nil {
		return nil, err
	}
	if len(res.Results) != len(messages) {
		return nil, core.Errorf(core.CodeUnknown, "server answered %d results for %d messages", len(res.Results), len(messages))
	}
	out := make([]PublishResult, len(messages))
	for i, r := range res.Results {
		if out[i].Err = convert.ErrorFromProto(r.Error); out[i].Err == nil {
			out[i].Receipt, out[i].Err = publishedOf(r)
		}
	}
	return out, nil
}

func publishedOf(r *pb.PublishResponse_Result) (Receipt, error) {
	id, err := parseID(r.Id)
	if err != nil {
		return Receipt{}, err
	}
	at, err := ParseReceipt(r.Receipt)
	return Receipt{ID: MessageID{ID: id}, Receipt: at}, err
}

// Pull delivers up to most messages (0: one; at most 1,000), and waits up to wait (at most 60 s) for the first. No
// message is not an error.
func (c *Client) Pull(ctx context.Context, queue, group string, most int, wait time.Duration) ([]Pulled, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, min(wait, core.LongestWait)+c.opts.timeout)
		defer cancel()
	}
	res, err := poll(ctx, c, c.msgs.Pull, &pb.PullRequest{
		Queue: queue, Group: group, MaxMessages: int32(most), Wait: convert.DurationToProto(wait),
	})
	if err != nil {
		return nil, err
	}
	return all(res.Messages, pulledOf)
}

func pulledOf(p *pb.PulledMessage) (Pulled, error) {
	at, err := ParseReceipt(p.Receipt)
	if err != nil {
		return Pulled{}, err
	}
	m, err := messageFromProto(p.Message)
	return Pulled{Token: p.Token, Receipt: at, Attempt: int(p.Attempt), Enqueued: timeFromProto(p.Enqueued), Message: m, Metadata: p.Metadata}, err
}

// Ack acks deliveries by their tokens, at most 1,000. The tokens that were refused are returned; the others were
// applied.
func (c *Client) Ack(ctx context.Context, tokens ...string) ([]TokenError, error) {
	return c.settle(tokens, func(good []string) (*pb.SettleResponse, error) {
		return change(ctx, c, c.msgs.Ack, &pb.AckRequest{Tokens: good})
	})
}

// Nack reports by their tokens that attempts failed, with the options of Delivery.Nack. The tokens that were refused
// are returned.
func (c *Client) Nack(ctx context.Context, tokens []string, opts ...NackOption) ([]TokenError, error) {
	var o nackOptions
	for _, opt := range opts {
		opt(&o)
	}
	req := &pb.NackRequest{Reason: reasonText(o.reason), Metadata: o.metadata}
	if o.hasDelay {
		req.Delay = delayToProto(o.delay)
	}
	return c.settle(tokens, func(good []string) (*pb.SettleResponse, error) {
		req.Tokens = good
		return change(ctx, c, c.msgs.Nack, req)
	})
}

// Reject rejects deliveries by their tokens, for a reason that must be given. The tokens that were refused are
// returned.
func (c *Client) Reject(ctx context.Context, tokens []string, reason string) ([]TokenError, error) {
	return c.settle(tokens, func(good []string) (*pb.SettleResponse, error) {
		return change(ctx, c, c.msgs.Reject, &pb.RejectRequest{Tokens: good, Reason: reasonText(reason)})
	})
}

// Extend moves the ends of the locks of deliveries, by their tokens, to this long from now: 1 s to 12 h. The tokens
// that were refused are returned.
func (c *Client) Extend(ctx context.Context, tokens []string, by time.Duration) ([]TokenError, error) {
	return c.settle(tokens, func(good []string) (*pb.SettleResponse, error) {
		return change(ctx, c, c.msgs.Extend, &pb.ExtendRequest{Tokens: good, By: delayToProto(by)})
	})
}

// reasonText is a reason as a call takes it: text of at most 1 KiB. On a stream it may be any bytes, and the host cuts
// it.
func reasonText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	n := min(len(s), wire.MaxReason)
	for n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// settle calls with the tokens that can be sent, and lists those that were refused; one that is no text cannot be a
// token.
func (c *Client) settle(tokens []string, call func(good []string) (*pb.SettleResponse, error)) ([]TokenError, error) {
	var out []TokenError
	good := make([]string, 0, len(tokens))
	for _, t := range tokens {
		if utf8.ValidString(t) {
			good = append(good, t)
		} else {
			out = append(out, TokenError{Token: t, Err: core.Errorf(core.CodeBadToken, "delivery token is not text; pass it on as it was delivered")})
		}
	}
	if len(good) == 0 && len(out) > 0 {
		return out, nil
	}
	res, err := call(good)
	if err != nil {
		return nil, err
	}
	for _, f := range res.Failures {
		out = append(out, TokenError{Token: f.Token, Err: convert.ErrorFromProto(f.Error)})
	}
	return out, nil
}
