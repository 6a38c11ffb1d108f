package convert_test

import (
	"slices"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

func TestOpenings(t *testing.T) {
	all := []core.BreakerOpening{{Group: core.GroupID{ID: core.ID{1}}, Number: 7}, {Group: core.GroupID{ID: core.ID{2}}, Run: core.RunID{ID: core.ID{3}}, Number: 1}}
	if got, err := convert.OpeningsFromProto(convert.OpeningsToProto(all)); err != nil || !slices.Equal(got, all) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := convert.OpeningsFromProto(convert.OpeningsToProto(nil)); err != nil || got != nil {
		t.Errorf("none: got %v, %v", got, err)
	}
	id := make([]byte, 16)
	for name, x := range map[string]struct {
		in   []*pb.BreakerOpening
		code core.Code
	}{
		"too many": {make([]*pb.BreakerOpening, core.MaxOpenings+1), core.CodeTooLarge}, "no group": {[]*pb.BreakerOpening{{Run: id}}, core.CodeBadID},
		"nothing": {make([]*pb.BreakerOpening, 1), core.CodeBadID}, "a long run": {[]*pb.BreakerOpening{{Group: id, Run: make([]byte, 17)}}, core.CodeBadID},
	} {
		if _, err := convert.OpeningsFromProto(x.in); core.CodeOf(err) != x.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}
