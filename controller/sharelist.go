package controller

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
)

// Bounds of one list of shares. An output host refuses a request above serving.MaxRequest, and would take no list at all any more.
const (
	maxListBytes       = serving.MaxRequest / 4 * 3
	maxAssignmentBytes = 4 << 10 // no assignment is larger: what cannot be too long is not measured
)

// cutList leaves out, of a list above limit, the shares of the newest extents, and answers how many. They come as older ones are consumed to their ends, or move to
// other hosts: an output host that takes part of its shares goes on, one that refuses its list would not.
func cutList(list *pb.AssignmentList, limit int) (left int) {
	all := list.Assignments
	if len(all) <= limit/maxAssignmentBytes {
		return 0
	}
	size := proto.Size(&pb.AssignmentList{Version: list.Version, Run: list.Run})
	sizes := make(map[*pb.Assignment]int, len(all))
	for _, a := range all {
		sizes[a] = 1 + protowire.SizeBytes(proto.Size(a))
		size += sizes[a]
	}
	if size <= limit {
		return 0
	}
	newest := slices.Clone(all)
	slices.SortFunc(newest, func(a, b *pb.Assignment) int { return slices.Compare(b.Extent.Id, a.Extent.Id) })
	out := make(map[*pb.Assignment]bool)
	for _, a := range newest {
		if size <= limit {
			break
		}
		size -= sizes[a]
		out[a] = true
	}
	list.Assignments = slices.DeleteFunc(all, func(a *pb.Assignment) bool { return out[a] })
	return len(out)
}

// leftOut notes how many shares the list of a host leaves out: of all hosts now, and whether it is the first time for this one.
func (s *shares) leftOut(owner core.HostID, left int) (all int, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.mu.leftOut[owner]
	if left > 0 {
		s.mu.leftOut[owner] = left
	} else {
		delete(s.mu.leftOut, owner)
	}
	for _, n := range s.mu.leftOut {
		all += n
	}
	return all, left > 0 && !was
}

// listOf is the list of an output host in that run, within its bound. An operator hears of shares that are left out.
func (h *Host) listOf(owner core.HostID, run core.RunID) *pb.AssignmentList {
	list := h.shares.list(owner, run, h.otherHolders, h.homed, h.isRetry)
	left := cutList(list, h.cfg.ListBytes)
	all, news := h.shares.leftOut(owner, left)
	h.metrics.leftOut.Set(float64(all))
	if news {
		h.log.Error("an output host owns more shares than one list holds; the shares of its newest extents wait until older ones are consumed: start more output hosts",
			"host", owner, "given", len(list.Assignments), "wait", left)
	}
	return list
}
