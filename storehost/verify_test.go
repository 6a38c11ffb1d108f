package storehost

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

func TestVerify(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	a.append(w.Batch(3, 1000), 0)
	a.awaitAck(3)
	verify := func(ctx context.Context, req *pb.VerifyReplicaRequest) (*pb.VerifyReplicaResponse, error) {
		resp, err := s.rpc.Verify(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, convert.FromRPC(err)
		}
		return resp.Msg, nil
	}
	v, err := verify(t.Context(), &pb.VerifyReplicaRequest{Extent: e.ID.ID[:]})
	must(t, err)
	if !v.Sound || v.Lifted || v.Why != "" || v.Bytes < 3000 {
		t.Errorf("verified: %v, want sound", v)
	}
	unknown := extentlogtest.Extent()
	for name, x := range map[string]struct {
		req  *pb.VerifyReplicaRequest
		code core.Code
	}{
		"no id":         {&pb.VerifyReplicaRequest{}, core.CodeBadID},
		"unknown":       {&pb.VerifyReplicaRequest{Extent: unknown.ID.ID[:]}, core.CodeNotFound},
		"another store": {&pb.VerifyReplicaRequest{Extent: e.ID.ID[:], Expected: &pb.StoreIdentity{Store: "s2"}}, core.CodeConflict},
	} {
		if _, err := verify(t.Context(), x.req); core.CodeOf(err) != x.code {
			t.Errorf("%s: %v, want %q", name, err, x.code)
		}
	}
	must(t, s.host.verifying.Acquire(t.Context(), 1)) // by another one
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.host.verify(ctx, e.ID); core.CodeOf(err) != core.CodeDeadline {
		t.Errorf("behind another one: %v, want %q", err, core.CodeDeadline)
	}
	s.host.verifying.Release(1)
}
