package frontend

import (
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// TestUpdateGroup_AtMostOnce refuses the settings that a new group of this delivery may not have. A setting that is not
// named may be there, as a read group has it. The group shows the one delivery that it makes.
func TestUpdateGroup_AtMostOnce(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	spec := func(change func(*pb.GroupSpec)) *pb.GroupSpec {
		s := &pb.GroupSpec{Queue: "/t/a", Name: "g"}
		change(s)
		return s
	}
	backoff := &pb.Backoff{Min: durationpb.New(1e9), Factor: 2, Max: durationpb.New(5e9)}
	if g := must(call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: spec(func(s *pb.GroupSpec) { s.Delivery = string(core.AtMostOnce) })}))(t); g.Spec.MaxDeliveries != 1 {
		t.Errorf("the new group shows %d deliveries, want 1", g.Spec.MaxDeliveries)
	}
	for name, s := range map[string]*pb.GroupSpec{
		"more deliveries":      spec(func(s *pb.GroupSpec) { s.MaxDeliveries = 3 }),
		"unlimited deliveries": spec(func(s *pb.GroupSpec) { s.MaxDeliveries = core.UnlimitedDeliveries }),
		"backoff":              spec(func(s *pb.GroupSpec) { s.Backoff = backoff }),
	} {
		_, err := call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: s})
		wantCode(t, name, err, core.CodeBadArgument)
	}
	to := spec(func(s *pb.GroupSpec) { s.MaxDeliveries, s.Backoff, s.Delay = 3, backoff, durationpb.New(1e9) })
	g := must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: to, Fields: []string{"delay"}}))(t)
	if g.Spec.MaxDeliveries != 1 || g.Spec.Delay.AsDuration() != 1e9 {
		t.Errorf("updated to %v", g.Spec)
	}
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: spec(func(s *pb.GroupSpec) { s.MaxDeliveries = 1 })}))(t)
}
