package node

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// watchEvery is how often the metadata are asked whether they still work.
const watchEvery = time.Second

// newFor is how long a cluster counts as new at most.
const newFor = time.Minute

// holder serves the embedded metadata to the other processes of the cluster, and ends this one when they have failed
// for good or when another holder turns up that counts: two of them would be two clusters.
type holder struct {
	service
	failed  func() error
	members membership.Monitor
	foreign func() []membership.Host                       // hosts of other clusters; nil unless this run of the process made the cluster, and it is new
	joined  func() bool                                    // a host of another process belongs to the cluster
	began   time.Time                                      // when the cluster was made, if foreign is there
	copied  func(ctx context.Context, now time.Time) error // see copies.check
	log     *slog.Logger
	metrics prometheus.Registerer
}

var _ role = (*holder)(nil)

func newHolder(res *resources, log *slog.Logger) *holder {
	h := &holder{service: newService(res.meta), log: log, metrics: res.metrics, failed: res.failed, members: res.members}
	h.serve = res.gossip != nil
	h.copied = func(context.Context, time.Time) error { return nil }
	if res.copies != nil {
		res.copies.serving = true // when the holder runs
		h.copied = res.copies.check
	}
	if res.begins {
		h.foreign, h.joined, h.began = res.gossip.Foreign, res.joined, time.Now()
	}
	return h
}

// Run returns why this process must not hold the metadata any longer, or nil when ctx ends.
func (h *holder) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	defer h.members.Changed(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
			if other, ok := olderHolder(h.members); ok {
				return secondHolder(other)
			}
		}
		if err := h.yield(ctx); err != nil {
			return err
		}
		if err := h.copied(ctx, time.Now()); err != nil {
			return err
		}
		if err := h.failed(); err != nil {
			return core.Errorf(core.CodeOf(err), "the process cannot go on: %w", err)
		}
	}
}

// yield gives way, while the cluster is new, to an older one whose hosts are met: somebody made one cluster of two.
func (h *holder) yield(ctx context.Context) error {
	if h.foreign == nil {
		return nil
	}
	other, met := olderOf(h.foreign(), h.members.Self())
	if !met {
		return nil
	}
	used, err := h.used(ctx)
	switch {
	case err != nil:
		return nil // the metadata do not answer now: the next look decides
	case !used:
		return secondHolder(other)
	}
	h.foreign = nil
	h.log.Warn("the controller of another cluster was met, and this one goes on, as it is in use; see that each process joins hosts of its own cluster with --join",
		"other", other.ID, "addr", other.Address)
	return nil
}

// used reports whether the cluster is no longer new: it must not end because a host joins two clusters.
func (h *holder) used(ctx context.Context) (bool, error) {
	if time.Since(h.began) > newFor || h.joined() {
		return true, nil
	}
	queues, _, err := h.store.List(ctx, metadata.Names, metadata.PartitionPath, "", 1, metadata.Serial)
	return len(queues) > 0, err
}

// olderHolder is another live host that has held the metadata for longer than this one.
func olderHolder(members membership.Monitor) (membership.Host, bool) {
	return olderOf(members.Hosts(membership.RoleMetadata), members.Self())
}

// olderOf is one of hosts that holds metadata and began before self.
func olderOf(hosts []membership.Host, self membership.Host) (membership.Host, bool) {
	for _, h := range hosts {
		if h.Has(membership.RoleMetadata) && h.ID != self.ID && bytes.Compare(h.Run.ID[:], self.Run.ID[:]) < 0 {
			return h, true
		}
	}
	return membership.Host{}, false
}

func secondHolder(other membership.Host) error {
	return core.Errorf(core.CodeConflict, "host %s at %s holds the embedded metadata of this cluster and runs its controller already, and more than one needs metadata in Cassandra; "+
		"start this process without the role %s, like --roles %s, or stop that one", other.ID, other.Address, RoleController,
		strings.Join([]string{RoleStore, RoleInput, RoleOutput}, ","))
}
