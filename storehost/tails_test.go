package storehost

import (
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// TestGetTails: an extent that grows, one that is not here, and the bound of a call.
func TestGetTails(t *testing.T) {
	s := startStore(t, "s1")
	e, absent, w := extent("s1"), extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	a.append(w.Batch(3, 10), 0)
	a.awaitAck(3)
	a.append(w.Batch(2, 10), 3)
	a.awaitAck(5)
	ask := func(ids ...[]byte) ([]*pb.GetTailsResponse_Tail, error) {
		resp, err := s.rpc.GetTails(t.Context(), connect.NewRequest(&pb.GetTailsRequest{Extents: ids}))
		if err != nil {
			return nil, convert.FromRPC(err)
		}
		return resp.Msg.Tails, nil
	}
	tails, err := ask(absent.ID.ID[:], e.ID.ID[:])
	must(t, err)
	if len(tails) != 2 || !tails[0].Absent || tails[1].Absent || tails[1].Committed != 3 || tails[1].Last != 5 || tails[1].Bytes == 0 {
		t.Errorf("got %v, want none and 3 of 5 committed", tails)
	}
	most := make([][]byte, tailsAtOnce)
	for i := range most {
		most[i] = absent.ID.ID[:]
	}
	tails, err = ask(most...)
	must(t, err)
	if len(tails) != tailsAtOnce {
		t.Errorf("%d answers to %d questions", len(tails), tailsAtOnce)
	}
	_, err = ask(append(most, absent.ID.ID[:])...)
	wantCode(t, err, core.CodeTooLarge)
	_, err = ask([]byte("short"))
	wantCode(t, err, core.CodeBadID)
}
