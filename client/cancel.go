package client

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// CancelOutcome is what came of cancelling a message, for one group.
type CancelOutcome = core.CancelOutcome

const (
	OutcomeCancelled = core.CancelDone      // the group never gets it
	OutcomeDelivered = core.CancelDelivered // too late: it was delivered, and goes on as if nothing had been said
	OutcomeDue       = core.CancelDue       // too late: it was due, and may have been delivered; it goes on, too
)

// Cancelled is what came of cancelling one message.
type Cancelled struct {
	Receipt core.Receipt
	Err     error // nothing was cancelled; with ErrUnknownOutcome it may be: ask again
	Groups  []CancelledFor
}

// CancelledFor is what came of it for one group of the queue.
type CancelledFor struct {
	Group   string
	Outcome CancelOutcome
}

// cancelAtOnce is how many messages one call cancels.
const cancelAtOnce = 100

// Cancel takes messages back that were published for later, by their receipts: no group gets them that has not got
// them, and none that is made later. A queue may be named, for the messages to be of that. The results are in the order
// of the receipts. It may be repeated, and then says the same. On an error the results of the calls before it are
// answered.
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
