package cli

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
)

func TestGolden_Cancel(t *testing.T) {
	t.Parallel()
	s, addr := newFakeServer(t)
	golden(t, "cancel.txt", transcript(addr, []step{
		{line: "cancel " + fakeExtent + ":1"},
		{line: "cancel /demo/a " + fakeExtent + ":1 -o json"},
		{line: "cancel " + fakeExtent + ":2"},
		{line: "cancel " + fakeExtent + ":3"},
		{line: "cancel " + fakeExtent + ":4"},
		{line: "cancel " + fakeExtent + ":1 " + fakeExtent + ":3 " + fakeExtent + ":2 -o json"},
		{line: "cancel -", stdin: fakeExtent + ":1\n" + fakeExtent + ":2\n"},
		{line: "cancel"},
		{line: "cancel /demo/a"},
		{line: "cancel /demo/a 42"},
		{line: "cancel demo " + fakeExtent + ":1"},
		{line: "cancel --help"},
	}))
	transcript(addr, []step{{line: "cancel /demo/a " + fakeExtent + ":1 " + fakeExtent + ":2"}})
	if want := (&pb.CancelRequest{Queue: "/demo/a", Receipts: []string{fakeExtent + ":1", fakeExtent + ":2"}}); !proto.Equal(s.last, want) {
		t.Errorf("asked for %v, want %v", s.last, want)
	}
}
