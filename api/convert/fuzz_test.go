package convert_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

var fuzzNow = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// FuzzConvert reads any bytes as each message that becomes a noun. A noun stays the same when it is converted to its
// message and back.
func FuzzConvert(f *testing.F) {
	extent := core.Extent{ID: core.ExtentID{ID: core.NewID(fuzzNow)}, Queue: core.QueueID{ID: core.NewID(fuzzNow)}}
	for _, m := range []proto.Message{
		convert.ExtentToProto(extent), convert.QueueSpecToProto(core.QueueSpec{}), convert.NamespaceSpecToProto(core.NamespaceSpec{Name: "/a"}),
		convert.GroupSpecToProto(core.GroupSpec{Name: "g", Start: core.Start{Mode: core.StartLatest}, LockTimeout: time.Second}), convert.IdentityToProto(core.StoreIdentity{}),
		convert.SelectionToProto(core.Selection{Reasons: []string{"nack"}, MinAttempts: 1}), convert.ErrorToProto(core.Errorf(core.CodeStale, "stale")),
		&pb.FenceResponse{},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		turn(t, b, func(p *pb.Extent) (core.Extent, error) { return convert.Extent(p) }, convert.ExtentToProto)
		turn(t, b, func(p *pb.QueueSpec) (core.QueueSpec, error) { return convert.QueueSpec(p), nil }, convert.QueueSpecToProto)
		turn(t, b, func(p *pb.NamespaceSpec) (core.NamespaceSpec, error) { return convert.NamespaceSpec(p), nil }, convert.NamespaceSpecToProto)
		turn(t, b, func(p *pb.GroupSpec) (core.GroupSpec, error) { return convert.GroupSpec(p, fuzzNow) }, convert.GroupSpecToProto)
		turn(t, b, convert.Identity, convert.IdentityToProto)
		turn(t, b, convert.FenceAnswer, convert.FenceAnswerToProto)
		turn(t, b, convert.ListVersion, convert.ListVersionToProto)
		turn(t, b, func(p *pb.DeadLetterSelection) (core.Selection, error) { return convert.Selection(p), nil }, convert.SelectionToProto)
		if err := convert.FrameError(b); err != nil {
			_, _ = err.Error(), core.CodeOf(err).Exit()
			_ = convert.FromRPC(convert.RPCError(err))
		}
	})
}

// turn is bytes → message → noun → message → noun.
func turn[P interface {
	*M
	proto.Message
}, M, N any](t *testing.T, b []byte, noun func(P) (N, error), message func(N) P) {
	t.Helper()
	p := P(new(M))
	if proto.Unmarshal(b, p) != nil {
		return
	}
	first, err := noun(p)
	if err != nil {
		return
	}
	second, err := noun(message(first))
	if err != nil {
		t.Fatalf("%T %+v does not come back: %v", first, first, err)
	}
	third, err := noun(message(second))
	if err != nil {
		t.Fatalf("%T %+v does not come back twice: %v", second, second, err)
	}
	if diff := cmp.Diff(second, third, cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateNaNs()); diff != "" {
		t.Fatalf("%T (-first turn +second):\n%s", second, diff)
	}
}
