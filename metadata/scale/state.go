// Package scale owns the metadata of large clusters for tests and measurements. The rows are those that servers write.
package scale

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// Records of each extent with an end.
const Records = 1

// Size is how much a cluster has. Each queue has one group, which has a dead letter queue.
type Size struct {
	Queues  int
	Extents int // of each queue; the last one is open, the others are sealed
	Behind  int // of those: the group has not consumed the last so many
}

// Hosts are those that the rows name.
type Hosts struct {
	Controller core.HostID
	Run        core.RunID // of the controller that assigned the shares
	Input      core.HostID
	InputRun   core.RunID // that writes the open extents
	Stores     []core.Place
	// Owner is who has a share.
	Owner func(core.GroupID, core.ExtentID) (core.HostID, core.RunID)
	// Checksum of the records in a sealed extent.
	Checksum uint32
}

// Cluster is the state that was written.
type Cluster struct {
	Queues  []core.QueueID
	Extents []core.Extent // those of a queue one after the other
	Open    map[core.ExtentID]bool
}

// writesAtOnce are the queues that are written side by side.
const writesAtOnce = 64

// Write makes the rows of a cluster. The extents were made in the last hours before now, one after the other.
func Write(ctx context.Context, to metadata.Store, size Size, hosts Hosts, now time.Time) (Cluster, error) {
	c := Cluster{Open: make(map[core.ExtentID]bool)}
	var writes errgroup.Group
	writes.SetLimit(writesAtOnce)
	for i := range size.Queues {
		q := newQueue(i, size, hosts, now)
		c.Queues = append(c.Queues, q.record.ID)
		for n, e := range q.extents {
			c.Extents = append(c.Extents, e)
			c.Open[e.ID] = n == size.Extents-1
		}
		writes.Go(func() error { return q.write(ctx, to, size, hosts, now) })
	}
	return c, writes.Wait()
}

// queue is one with its group and extents.
type queue struct {
	record  metadata.QueueRecord
	letters metadata.QueueRecord
	group   metadata.GroupRecord
	extents []core.Extent
}

// pause is the time between two extents of a queue.
const pause = time.Hour

func newQueue(n int, size Size, hosts Hosts, now time.Time) queue {
	made := now.Add(-time.Duration(size.Extents+1) * pause).Add(time.Duration(n) * 10 * time.Millisecond)
	path := fmt.Sprintf("/scale/q%06d", n)
	q := queue{record: metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(made)}, Created: made.UTC()}}
	q.record.Spec = core.QueueSpec{Path: path, ConsumedRetention: 7 * 24 * time.Hour, UnconsumedRetention: 7 * 24 * time.Hour}.
		WithDefaults(len(hosts.Stores), min(2, len(hosts.Stores)))
	group := core.GroupSpec{Queue: path, Name: "g"}.WithDefaults()
	q.group = metadata.GroupRecord{
		ID: core.GroupID{ID: core.NewID(made)}, Queue: q.record.ID, Spec: group, Created: made.UTC(), Starts: 1, DLQ: core.QueueID{ID: core.NewID(made)}, Started: true,
	}
	q.letters = metadata.QueueRecord{ID: q.group.DLQ, Created: made.UTC(), Owner: q.group.ID}
	q.letters.Spec = core.QueueSpec{Path: core.DLQPath(path, "g")}.WithDefaults(len(hosts.Stores), min(2, len(hosts.Stores)))
	for i := range size.Extents {
		e := core.Extent{
			ID: core.ExtentID{ID: core.NewID(made.Add(time.Duration(i+1) * pause))}, Queue: q.record.ID, Kind: core.KindLog, Durability: core.DurabilityFsync,
			Input: hosts.Input, InputRun: hosts.InputRun, Token: core.WriterToken{ID: core.NewID(now)},
		}
		for _, p := range hosts.Stores {
			e.Replicas, e.Disks = append(e.Replicas, p.Store), append(e.Disks, p.Disk)
		}
		q.extents = append(q.extents, e)
	}
	return q
}

// write makes the rows of a queue as a frontend, a controller and an output host do.
func (q queue) write(ctx context.Context, to metadata.Store, size Size, hosts Hosts, now time.Time) error {
	for _, r := range []metadata.QueueRecord{q.record, q.letters} {
		name := metadata.NameRecord{Queue: r.ID, Spec: r.Spec, Owner: r.Owner}
		if err := metadata.Create(ctx, to, metadata.Names, metadata.NameKey(r.Spec.Path), name); err != nil {
			return err
		}
		if err := metadata.Create(ctx, to, metadata.Queues, metadata.QueueKey(r.ID), r); err != nil {
			return err
		}
	}
	if err := metadata.Create(ctx, to, metadata.Groups, metadata.GroupKey(q.record.ID, q.group.Spec.Name), q.group); err != nil {
		return err
	}
	puts := puts{rows: make(map[metadata.Table][]metadata.Row), now: now}
	for i, e := range q.extents {
		open := i == size.Extents-1
		r := metadata.ExtentRecord{Extent: e, Created: e.ID.Time(), Wanted: len(e.Replicas), Home: core.Home{Kind: core.HomeOwn}}
		add(&puts, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), r)
		add(&puts, metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), r)
		if open {
			add(&puts, metadata.Work, metadata.HintKey(metadata.HintOpen, e.ID), r)
		} else if err := metadata.Create(ctx, to, metadata.Seals, metadata.SealKey(e.ID), q.seal(e, hosts)); err != nil {
			return err
		}
		if i < size.Extents-1-size.Behind {
			add(&puts, metadata.Dones, metadata.DoneKey(q.group.ID, e.ID, q.group.Epoch), metadata.DoneRecord{L: Records})
			continue
		}
		a := metadata.AssignmentRecord{Group: q.group.ID, Queue: q.record.ID, Name: q.group.Spec.Name, Extent: e, Counter: 1, By: hosts.Controller, ByRun: hosts.Run}
		a.Owner, a.Run = hosts.Owner(q.group.ID, e.ID)
		add(&puts, metadata.Assignments, metadata.AssignmentKey(a.Group, e.ID, a.Precedence()), a)
		puts.checkpoint(a)
	}
	return puts.write(ctx, to)
}

// seal is the row of an extent that was sealed and has all its copies.
func (q queue) seal(e core.Extent, hosts Hosts) metadata.SealRecord {
	at := e.ID.Time().Add(pause / 2)
	r := metadata.SealRecord{
		Extent: e, State: core.ExtentSealed, Floor: Records, L: Records, Checksum: hosts.Checksum, Bytes: Records, Version: 1,
		Home: core.Home{Kind: core.HomeOwn}, Reason: "full", Attempt: core.NewID(at), Changed: at, Ended: at,
	}
	r.SetPlaces(hosts.Stores)
	return r
}

// puts are the plain rows of a queue.
type puts struct {
	rows map[metadata.Table][]metadata.Row
	now  time.Time
	err  error
}

func add[T any](p *puts, t metadata.Table, k metadata.Key, v T) {
	row, err := metadata.NewRow(t, k, v, p.now)
	if err != nil {
		p.err = err
	}
	p.rows[t] = append(p.rows[t], row)
}

// checkpoint of a share whose owner has settled nothing.
func (p *puts) checkpoint(a metadata.AssignmentRecord) {
	key := metadata.CheckpointKey(a.Group, a.Extent.ID, 0, a.Run)
	state := dispatch.StateDone(&acklevel.Window{})
	p.rows[metadata.Checkpoints] = append(p.rows[metadata.Checkpoints], metadata.Row{Key: key, Value: state.Append(nil), Written: p.now})
}

func (p *puts) write(ctx context.Context, to metadata.Store) error {
	for t, rows := range p.rows {
		if p.err != nil {
			return p.err
		}
		if err := to.PutAll(ctx, t, rows, metadata.Quorum); err != nil {
			return err
		}
	}
	return p.err
}
