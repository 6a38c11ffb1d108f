package controller

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// AcknowledgeSession is refused: a controller beside embedded metadata has no others.
func (s *service) AcknowledgeSession(context.Context, *connect.Request[pb.AcknowledgeSessionRequest]) (*connect.Response[pb.AcknowledgeSessionResponse], error) {
	return nil, convert.RPCError(core.Errorf(core.CodeUnsupported, "this controller has no session lease"))
}
