package client

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// An extent has no owner for a while. Settlements of another extent do not wait for it.
func TestSettler_AnExtentWithoutOwnerHoldsUpNoOther(t *testing.T) {
	var settled atomic.Int32
	f := startFake(t, &fake{settle: func(tokens []string) *pb.SettleResponse {
		out := &pb.SettleResponse{}
		for _, token := range tokens {
			if !strings.HasPrefix(token, "away") {
				settled.Add(1)
				continue
			}
			err := core.Errorf(core.CodeMoved, "nobody has the extent now")
			out.Failures = append(out.Failures, &pb.SettleResponse_Failure{Token: token, Error: convert.ErrorToProto(err)})
		}
		return out
	}})
	con := consume(t, dial(t, f))
	now := con.now()
	of := func(token string, verb wire.FrameType, base core.Seq, count uint32) settlement {
		return settlement{
			verb: verb, extent: &extentRef{id: core.ExtentID{ID: core.NewID(time.Now())}, token: token},
			run: wire.SeqRun{Base: base, Count: count, Attempt: 1}, asked: now, until: now + int64(time.Minute),
		}
	}
	con.settler.add(of("away", wire.TypeAck, 1, settleAtOnce), of("here", wire.TypeAck, 1, 1), of("here", wire.TypeNack, 2, 1))
	eventually(t, "the ack and the nack of the other extent are settled", func() bool { return settled.Load() == 2 })
}
