package controller

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
)

const (
	// maxListBytes bounds the list of one queue. An output host refuses a request above serving.MaxRequest, and would not
	// take the list at all any more.
	maxListBytes       = serving.MaxRequest / 4 * 3
	maxAssignmentBytes = 4 << 10 // no assignment is larger: what cannot be too long is not measured
	// pageBytes bounds the lists in one call, unless the first one is longer by itself. To resume a share takes a few
	// calls to the metadata: with a thousand of them a call comes to its end in time.
	pageBytes = 256 << 10
)

// listOf is the list of a queue for an output host, newer than the version that the host has, within its bound. An
// operator hears of shares that are left out.
func (h *Host) listOf(owner catalog.HostRun, queue core.QueueID, known core.ListVersion) *pb.AssignmentList {
	list := h.shares.List(owner, queue, known)
	out := &pb.AssignmentList{Queue: queue.ID[:], Version: convert.ListVersionToProto(list.Version), Assignments: make([]*pb.Assignment, 0, len(list.Shares))}
	for _, d := range list.Shares {
		if e, live := h.extents.Get(d.Extent); live { // else a round drops the share
			out.Assignments = append(out.Assignments, assignment(d, e, list.Epochs[d.Group]))
		}
	}
	slices.SortFunc(out.Assignments, func(a, b *pb.Assignment) int {
		return cmp.Or(slices.Compare(a.Group, b.Group), slices.Compare(a.Extent.Id, b.Extent.Id))
	})
	left := cutList(out, h.cfg.ListBytes)
	all, news := h.shares.LeftOut(owner, queue, left)
	h.metrics.leftOut.Set(float64(all))
	if news {
		h.log.Error("an output host owns more shares of a queue than one list holds; the shares of its newest extents wait until older ones are consumed: start more output hosts",
			"host", owner.Host, "queue", queue, "given", len(out.Assignments), "wait", left)
	}
	return out
}

// assignment is what the owner of a share is told of it.
func assignment(d catalog.Decision, e catalog.Extent, epoch uint64) *pb.Assignment {
	a := &pb.Assignment{
		Group: d.Group.ID[:], Name: d.Name, Extent: convert.ExtentToProto(e.Extent), Counter: d.Counter, By: string(d.By), Epoch: epoch, Removed: e.Removed,
	}
	if e.State.HasEnd() && !sameStores(e) {
		for _, x := range e.Holders {
			a.Holders = append(a.Holders, string(x.Store))
		}
	}
	if d.Queue != e.Queue {
		a.Rate, a.Retry = uint32(max(e.Rate, 0)), ofRetryQueue(e)
	}
	return a
}

// ofRetryQueue reports whether an extent is one of a retry queue: a group reads it from its beginning that is not its
// queue's.
func ofRetryQueue(e catalog.Extent) bool { return e.ExtentRecord.Home.Kind == core.HomeMerged }

// sameStores reports whether all replicas hold all, and nobody else does.
func sameStores(e catalog.Extent) bool {
	return len(e.Holders) == len(e.Replicas) && !slices.ContainsFunc(e.Replicas, func(id core.HostID) bool { return !e.Holds(id) })
}

// listPage is the lists of one call.
type listPage struct {
	lists  []*pb.AssignmentList
	queues []core.QueueID // of the lists
	done   int            // how many of the queues that were asked for, from the first, the page settles
}

// page is the lists of an output host for the first of these queues, as many as fit into one call, at least one. Queues
// of which this controller may not tell have none.
func (h *Host) page(owner catalog.HostRun, queues []catalog.QueueVersion) (p listPage) {
	size := 0
	for _, q := range queues {
		var list *pb.AssignmentList
		if h.telling(q.Queue, func() { list = h.listOf(owner, q.Queue, q.Version) }) {
			size += proto.Size(list)
			if len(p.lists) > 0 && size > h.cfg.PageBytes {
				break
			}
			p.lists, p.queues = append(p.lists, list), append(p.queues, q.Queue)
		}
		p.done++
	}
	return p
}

// cutList leaves out, of a list above limit, the shares of the newest extents, and answers how many. They come as older
// ones are consumed to their ends, or move to other hosts: an output host that takes part of its shares goes on, one
// that refuses its list would not.
func cutList(list *pb.AssignmentList, limit int) (left int) {
	all := list.Assignments
	if len(all) <= limit/maxAssignmentBytes {
		return 0
	}
	size := proto.Size(&pb.AssignmentList{Queue: list.Queue, Version: list.Version})
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
