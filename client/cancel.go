package client

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// CancelOutcome is the outcome of cancelling a message, for one group.
type CancelOutcome = core.CancelOutcome

const (
	OutcomeCancelled = core.CancelDone      // the group never gets it
	OutcomeDelivered = core.CancelDelivered // it was delivered or settled before: not cancelled
	OutcomeDue       = core.CancelDue       // it was due, and may have been delivered: not cancelled
)

// Cancelled is the outcome of cancelling one message.
type Cancelled struct {
	Receipt core.Receipt
	Err     error // the message was not cancelled; with ErrUnknownOutcome it may be: ask again
	Groups  []CancelledFor
}

// CancelledFor is the outcome for one group of the queue.
type CancelledFor struct {
	Group   string
	Outcome CancelOutcome
}

// cancelAtOnce is how many messages one call cancels.
const cancelAtOnce = 100

// Cancel takes back messages that were published for later, by their receipts. Groups that have not received them will
// not, and groups created later will not. A message of a retry queue is taken back for the group of that queue. If
// queue is not "", the messages have to be of that queue. The results are in the order of the receipts. A repeated call
// answers the same. On an error the results of the calls before it are returned as well.
func (c *Client) Cancel(ctx context.Context, queue string, receipts ...core.Receipt) (out []Cancelled, err error) {
	for len(receipts) > 0 {
		n := min(len(receipts), cancelAtOnce)
		req := &pb.CancelRequest{Queue: queue}
		for _, at := range receipts[:n] {
			req.Receipts = append(req.Receipts, at.String())
		}
		res, err := repeat(ctx, c, c.msgs.Cancel, req)
		if err != nil {
			return out, err
		}
		if len(res.Results) != n {
			return out, core.Errorf(core.CodeUnknown, "server answered %d results for %d receipts", len(res.Results), n)
		}
		for i, r := range res.Results {
			one := Cancelled{Receipt: receipts[i], Err: convert.ErrorFromProto(r.Error)}
			for _, g := range r.Groups {
				one.Groups = append(one.Groups, CancelledFor{Group: g.Group, Outcome: CancelOutcome(g.Outcome)})
			}
			out = append(out, one)
		}
		receipts = receipts[n:]
	}
	return out, nil
}
