package frontend

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func (f *fakeStore) Verify(_ context.Context, _ *connect.Request[pb.VerifyReplicaRequest]) (*connect.Response[pb.VerifyReplicaResponse], error) {
	out, err := f.onVerify()
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

func TestVerifyExtent(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	e := newExtent(c.createGroup("/t/a", "g"))
	c.addExtent(e)
	id := e.ID.String()
	seal := metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 42, Holders: []core.HostID{"gone"}}
	if err := metadata.Create(t.Context(), c.store, metadata.Seals, metadata.SealKey(e.ID), seal); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		answer  *pb.VerifyReplicaResponse
		err     error
		outcome string
	}{
		"sound":      {&pb.VerifyReplicaResponse{Bytes: 7, Sound: true}, nil, "sound"},
		"lifted":     {&pb.VerifyReplicaResponse{Bytes: 7, Sound: true, Lifted: true}, nil, "lifted"},
		"damaged":    {&pb.VerifyReplicaResponse{Bytes: 7, Why: "a byte"}, nil, "damaged"},
		"absent":     {nil, core.Errorf(core.CodeNotFound, "none here"), "absent"},
		"unanswered": {nil, core.Errorf(core.CodeUnavailable, "too many files"), "unanswered"},
	} {
		c.stores.onVerify = func() (*pb.VerifyReplicaResponse, error) { return x.answer, x.err }
		all := must(call(t, c.admin.VerifyExtent, &pb.VerifyExtentRequest{Extent: id}))(t).Replicas
		if len(all) != 2 || all[0].Store != "a" || all[0].Outcome != x.outcome || all[0].Bytes != x.answer.GetBytes() || !strings.Contains(all[0].Reason, x.answer.GetWhy()) {
			t.Errorf("%s: %v", name, all)
		}
		if all[1].Store != "gone" || all[1].Outcome != "unanswered" || all[1].Reason == "" {
			t.Errorf("%s, of a holder that is away: %v", name, all[1])
		}
		one := must(call(t, c.admin.VerifyExtent, &pb.VerifyExtentRequest{Extent: id, Store: "a"}))(t).Replicas
		if len(one) != 1 || one[0].Outcome != x.outcome {
			t.Errorf("%s, on one store: %v", name, one)
		}
	}
	for name, x := range map[string]struct {
		req  *pb.VerifyExtentRequest
		code core.Code
	}{
		"no id":       {&pb.VerifyExtentRequest{Extent: "42"}, core.CodeBadID},
		"unknown":     {&pb.VerifyExtentRequest{Extent: core.NewID(time.Now()).String()}, core.CodeNotFound},
		"a bad store": {&pb.VerifyExtentRequest{Extent: id, Store: "no store"}, core.CodeBadName},
	} {
		_, err := call(t, c.admin.VerifyExtent, x.req)
		wantCode(t, name, err, x.code)
	}
	audit := must(call(t, c.admin.ListAudit, &pb.ListAuditRequest{Prefix: id}))(t).Entries
	slices.SortFunc(audit, func(a, b *pb.AuditEntry) int { return a.When.AsTime().Compare(b.When.AsTime()) }) // a list keeps the order of milliseconds
	if len(audit) != 10 || audit[0].What != "verify extent" || audit[1].What != "verify extent on store a" || audit[0].Result != "ok" || audit[0].Who == "" {
		t.Errorf("the audit has %v", audit)
	}
}
