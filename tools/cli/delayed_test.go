package cli

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
)

func TestTranscripts_Cancel(t *testing.T) {
	t.Parallel()
	s, addr := newFakeServer(t)
	transcript(t, addr, "cancel.txt")
	run(addr, "cancel /demo/a "+fakeExtent+":1 "+fakeExtent+":2")
	if want := (&pb.CancelRequest{Queue: "/demo/a", Receipts: []string{fakeExtent + ":1", fakeExtent + ":2"}}); !proto.Equal(s.last, want) {
		t.Errorf("asked for %v, want %v", s.last, want)
	}
}
