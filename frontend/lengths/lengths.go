// Package lengths owns the readable ends of extents, and the rates at which they grow: those of sealed extents come
// from the metadata, those of others from their stores.
package lengths

import (
	"context"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// Length is how far an extent may be read.
type Length struct {
	core.Extent
	Seal  metadata.SealRecord // of no state while nobody seals it
	Last  core.Seq            // its end, or what is committed
	Known bool                // false: no store could tell, or none was asked
	asked bool                // its stores were
	// Damage is why no row that describes the extent can be decoded; nil: the extent is known. Else it has only its id and
	// queue, and its length stays unknown.
	Damage error
}

// Readers are the stores that the extent may be read from, those that have all of it first.
func (l *Length) Readers() []core.HostID {
	switch {
	case !l.Seal.State.HasEnd():
		return l.Replicas
	case l.Seal.LostFrom == 0:
		return l.Seal.Holders
	}
	out := slices.Clone(l.Seal.Holders)
	for _, id := range l.Replicas {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// Readable is the last seq that may be read: what was given up behind it is read by nobody.
func (l *Length) Readable() core.Seq {
	if l.Seal.LostFrom > 0 {
		return l.Seal.ReadableTo()
	}
	return l.Last
}

// Stores answer for the extents that have no end. A timeout bounds one question.
type Stores interface {
	// Find answers a store that is there.
	Find(id core.HostID) (membership.Host, bool)
	Replica(ctx context.Context, h membership.Host, timeout time.Duration, req *pb.GetReplicaRequest) (*pb.Replica, error)
	Seek(ctx context.Context, h membership.Host, timeout time.Duration, req *pb.SeekRequest) (*pb.SeekResponse, error)
}

// Gauge tells lengths. It keeps nothing, and reads at Quorum.
type Gauge struct {
	Meta   metadata.Store
	Stores Stores
}

const (
	// sealsAtOnce bounds one look-up of seal rows, lookUpsAtOnce is how many are under way.
	sealsAtOnce   = 500
	lookUpsAtOnce = 4
	// callsAtOnce is how many calls to stores one question has under way.
	callsAtOnce = 32
	// FirstTimeout bounds the question to a store after which another one can be asked.
	FirstTimeout = time.Second
	// lastTimeout bounds the question to the last store that there is to ask.
	lastTimeout = 3 * time.Second
)

// OfQueue are the lengths of a queue's extents that a group reads, the zero one stands for its own, oldest first.
func (g Gauge) OfQueue(ctx context.Context, queue core.QueueID, group core.GroupID) ([]*Length, error) {
	all, err := g.Ends(ctx, queue, group)
	if err == nil {
		g.Measure(ctx, all)
	}
	return all, err
}

// Ends is OfQueue without a question to the stores: the lengths of extents without an end are not known.
func (g Gauge) Ends(ctx context.Context, queue core.QueueID, group core.GroupID) ([]*Length, error) {
	var all []*Length
	for r, err := range metadata.ExtentRows(ctx, g.Meta, queue, metadata.Quorum) {
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list the extents of queue %s: %w", queue, err)
		}
		all = append(all, &Length{Extent: r.Value.Extent, Damage: r.Err()})
	}
	reads, rctx := errgroup.WithContext(ctx)
	reads.SetLimit(lookUpsAtOnce)
	for some := range slices.Chunk(all, sealsAtOnce) {
		reads.Go(func() error { return g.readSeals(rctx, some) })
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(l *Length) bool { return l.Seal.State == core.ExtentRetired || !l.Seal.Home.ReadBy(group) }), nil
}

// Measure asks the stores for the lengths that are not known, for each one once.
func (g Gauge) Measure(ctx context.Context, all []*Length) {
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	for _, l := range all {
		if l.Known || l.asked {
			continue
		}
		calls.Go(func() error {
			l.Last, l.Known = g.Committed(ctx, l.Extent)
			l.asked = true
			return nil
		})
	}
	calls.Wait() // no function fails
}

// Sealed is what the metadata have of one extent's end: its length is known if it has one.
func (g Gauge) Sealed(ctx context.Context, e core.Extent) (*Length, error) {
	l := &Length{Extent: e}
	return l, g.readSeals(ctx, []*Length{l})
}

// readSeals fills in what the metadata have of the ends of extents.
func (g Gauge) readSeals(ctx context.Context, all []*Length) error {
	keys := make([]metadata.Key, len(all))
	byKey := make(map[metadata.Key]*Length, len(all))
	for i, l := range all {
		keys[i] = metadata.SealKey(l.ID)
		byKey[keys[i]] = l
	}
	rows, err := metadata.GetRows(ctx, g.Meta, metadata.Seals, keys, metadata.Quorum)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "look up the ends of %d extents: %w", len(keys), err)
	}
	for _, row := range rows {
		l := byKey[row.Key]
		if l.Seal, err = metadata.Decode[metadata.SealRecord](metadata.Seals, row); err != nil {
			return err
		}
		if l.Seal.State.HasEnd() {
			l.Last, l.Known = l.Seal.L, true
		}
	}
	return nil
}

// Committed is how far an extent without an end may be read, by the first of its stores that tells. One that is on none
// of them holds nothing.
func (g Gauge) Committed(ctx context.Context, e core.Extent) (last core.Seq, known bool) {
	req := &pb.GetReplicaRequest{Extent: e.ID.ID[:]}
	for h, timeout := range g.there(e.Replicas) {
		r, err := g.Stores.Replica(ctx, h, timeout, req)
		switch {
		case err == nil && !r.GetDamaged():
			return core.Seq(min(r.GetCommitted(), r.GetLast())), true
		case core.CodeOf(err) == core.CodeNotFound:
			known = true
		}
	}
	return 0, known
}

// Beyond reports whether none of an extent's stores has a message, committed or not: all of them say so. A store may
// not know the committed seq, for instance after its start.
func (g Gauge) Beyond(ctx context.Context, e core.Extent, seq core.Seq) bool {
	req, asked := &pb.GetReplicaRequest{Extent: e.ID.ID[:]}, 0
	for h, timeout := range g.there(e.Replicas) {
		asked++
		r, err := g.Stores.Replica(ctx, h, timeout, req)
		if core.CodeOf(err) != core.CodeNotFound && (err != nil || r.GetDamaged() || core.Seq(r.GetLast()) >= seq) {
			return false
		}
	}
	return asked == len(e.Replicas)
}

// there are those of the stores that are there, and how long to wait for the answer of each.
func (g Gauge) there(ids []core.HostID) iter.Seq2[membership.Host, time.Duration] {
	var there []membership.Host
	for _, id := range ids {
		if h, ok := g.Stores.Find(id); ok {
			there = append(there, h)
		}
	}
	return func(yield func(membership.Host, time.Duration) bool) {
		for i, h := range there {
			timeout := FirstTimeout
			if i == len(there)-1 {
				timeout = lastTimeout
			}
			if !yield(h, timeout) {
				return
			}
		}
	}
}

// rateWindows are what a rate is about: the longest, or the shortest in which all of its messages came.
var rateWindows = [...]time.Duration{10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second}

// Rate is how many messages per second were stored in extents until now, by the times of their batches: over the last
// ten seconds, or since publishing began within them.
func (g Gauge) Rate(ctx context.Context, all []*Length, now time.Time) float64 {
	sum, over := core.Seq(0), rateWindows[0]
	for i, window := range rateWindows {
		n := g.sinceAll(ctx, all, now.Add(-window))
		if i > 0 && n < sum || n == 0 {
			break
		}
		sum, over = n, window
	}
	return float64(sum) / over.Seconds()
}

// sinceAll counts the messages of extents from t on that may be read.
func (g Gauge) sinceAll(ctx context.Context, all []*Length, from time.Time) (sum core.Seq) {
	counts := make([]core.Seq, len(all))
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	for i, l := range all {
		if l.Seal.State.HasEnd() && l.Seal.Ended.Before(from) || l.Last == 0 {
			continue
		}
		calls.Go(func() error {
			counts[i] = g.Since(ctx, l, from)
			return nil
		})
	}
	calls.Wait() // no function fails
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Since counts the messages of an extent from t on that may be read; none when no store can tell.
func (g Gauge) Since(ctx context.Context, l *Length, t time.Time) core.Seq {
	req := &pb.SeekRequest{Extent: l.ID.ID[:], Time: timestamppb.New(t)}
	for h, timeout := range g.there(l.Readers()) {
		r, err := g.Stores.Seek(ctx, h, timeout, req)
		if first := core.Seq(r.GetSeq()); err == nil && first > 0 {
			return l.Readable() + 1 - min(first, l.Readable()+1)
		}
	}
	return 0
}
