package frontend

import (
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func TestPurgeQueue_Refusals(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	for name, x := range map[string]struct {
		req  *pb.StartOperationRequest
		code core.Code
	}{
		"merge without a group":   {&pb.StartOperationRequest{Kind: "merge", Queue: "/t/a"}, core.CodeBadArgument},
		"a rate":                  {&pb.StartOperationRequest{Kind: "purge", Queue: "/t/a", Rate: 5}, core.CodeBadArgument},
		"no queue":                {&pb.StartOperationRequest{Kind: "purge"}, core.CodeBadName},
		"no such queue":           {&pb.StartOperationRequest{Kind: "purge", Queue: "/t/none"}, core.CodeNotFound},
		"a queue of dead letters": {&pb.StartOperationRequest{Kind: "purge", Queue: "/t/a/g.dlq"}, core.CodeBadName},
	} {
		_, err := call(t, c.admin.StartOperation, x.req)
		wantCode(t, name, err, x.code)
	}
}
