package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// silence is after how long without a message a watch is taken for broken.
const silence = 3 * beat

// Bounds of the pause before a broken watch is asked for again.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// Watch implements metadata.Store. While the server is away it goes on asking; changed is called when it is back, since
// rows may have changed meanwhile.
func (s *Store) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if err := metadata.CheckList(t, partition, "", 1); err != nil {
		return err
	}
	caller := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.ctx, func() { end(errClosed) })()
	req := &pb.WatchPartitionRequest{Table: tableToProto(t), Partition: []byte(partition)}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		lived, err := s.follow(ctx, req, changed)
		if caller.Err() != nil {
			return caller.Err()
		}
		if s.ctx.Err() != nil {
			return errClosed
		}
		if core.CodeOf(err) == core.CodeBadArgument {
			return err
		}
		if lived {
			pause = minPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// errSilent ends a watch whose server says nothing.
var errSilent = errors.New("no sign of life")

// follow runs one stream until it breaks; lived says that a message came.
func (s *Store) follow(ctx context.Context, req *pb.WatchPartitionRequest, changed func()) (lived bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	timeout := time.AfterFunc(silence, func() { end(errSilent) })
	defer timeout.Stop()
	stream, err := s.rpc.WatchPartition(ctx, connect.NewRequest(req))
	if err != nil {
		return false, convert.FromRPC(err)
	}
	defer stream.Close()
	for stream.Receive() {
		lived = true
		timeout.Stop() // changed may take its time
		if stream.Msg().Changed {
			changed()
		}
		timeout.Reset(silence)
	}
	return lived, convert.FromRPC(stream.Err())
}
