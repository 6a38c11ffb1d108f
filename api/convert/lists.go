package convert

import (
	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// counterEnd bounds the counters of versions. They begin with the time in microseconds, which has 51 bits, and are
// raised above each other: a counter that wraps would make each later list an old one.
const counterEnd = 1 << 63

// ListVersion reads the version of a list of shares; nil is the zero value.
func ListVersion(p *pb.ListVersion) (core.ListVersion, error) {
	if p == nil {
		return core.ListVersion{}, nil
	}
	if err := CheckCounter(p.Counter); err != nil {
		return core.ListVersion{}, err
	}
	controller, err := core.ParseHostID(p.Controller)
	if err != nil {
		return core.ListVersion{}, err
	}
	run, err := core.IDFromBytes(p.Run)
	return core.ListVersion{Counter: p.Counter, Controller: controller, Run: core.RunID{ID: run}}, err
}

// CheckCounter refuses a counter of lists above which there is no room for more.
func CheckCounter(counter uint64) error {
	if counter >= counterEnd {
		return core.Errorf(core.CodeBadArgument, "the version of a list has counter %d, not below %d", counter, uint64(counterEnd))
	}
	return nil
}

// ListVersionToProto is the reverse; nil for the zero value.
func ListVersionToProto(v core.ListVersion) *pb.ListVersion {
	if v == (core.ListVersion{}) {
		return nil
	}
	return &pb.ListVersion{Counter: v.Counter, Controller: string(v.Controller), Run: v.Run.ID[:]}
}
