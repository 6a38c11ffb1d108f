package tenant

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

const (
	// readAnyway is when the limits are read also though nothing is said to have changed.
	readAnyway = 30 * time.Second
	// retryAfter is the pause after a call that failed; roundPause is between two rounds at least.
	retryAfter = 500 * time.Millisecond
	roundPause = 5 * time.Millisecond
	// callTimeout bounds one call.
	callTimeout = 2 * time.Second
)

// Watch has the limits read again when one changes, until ctx ends. A watch that was lost begins with a change.
func (t *Tenants) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.deps.Meta.Watch(ctx, metadata.Namespaces, metadata.PartitionID, func() {
			t.changed.Store(true)
			t.again()
		})
		if ctx.Err() != nil {
			return
		}
		t.deps.Log.Info("cannot watch the limits of namespaces", "err", err)
		sleep(ctx, callTimeout)
	}
}

// Run reads limits and renews leases until ctx ends. While nothing is limited it waits.
func (t *Tenants) Run(ctx context.Context) {
	timer := time.NewTimer(readAnyway)
	defer timer.Stop()
	var read time.Time
	var failures core.Recurring
	for {
		select {
		case <-t.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := readAnyway
		now := t.deps.Now()
		all := t.changed.Swap(false) || now.Sub(read) >= readAnyway
		if err := t.read(ctx, all); err == nil {
			failures.Succeeded()
			if all {
				read = now
			}
		} else if ctx.Err() == nil {
			if failures.Failed(now) {
				t.deps.Log.Info("cannot read the limits of namespaces; this host tries again until it can", "err", err)
			}
			if all {
				t.changed.Store(true)
			}
			next = retryAfter
		}
		if t.renew(ctx) {
			next = min(next, quota.RenewEvery)
		}
		t.forget(t.deps.Now())
		timer.Reset(next)
		sleep(ctx, roundPause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// read reads the records of the namespaces that are new here, or of all. A copy that is behind must not make a limit
// appear late: so it is no single one, unless no majority answers.
func (t *Tenants) read(ctx context.Context, all bool) error {
	tenants, _ := t.list()
	if !all {
		tenants = slices.DeleteFunc(tenants, func(n *tenant) bool { return isClosed(n.known) })
	}
	if len(tenants) == 0 {
		return nil
	}
	keys := make([]metadata.Key, len(tenants))
	for i, n := range tenants {
		keys[i] = metadata.NamespaceKey(n.name)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := metadata.GetRows(ctx, metadata.QuorumOrOne(t.deps.Meta), metadata.Namespaces, keys, metadata.Quorum)
	if err != nil {
		return err
	}
	found := make(map[metadata.Key]metadata.Row, len(rows))
	for _, row := range rows {
		found[row.Key] = row
	}
	for i, n := range tenants {
		spec := core.NamespaceSpec{Name: n.name}
		if row, there := found[keys[i]]; there {
			record, derr := metadata.Decode[metadata.NamespaceRecord](metadata.Namespaces, row)
			if derr != nil {
				err = derr
				continue
			}
			spec = record.Spec
		}
		t.apply(n, spec)
	}
	return err
}

// apply takes over limits that were read. New ones count in part until the controller has shared them out, which is
// asked for at once.
func (t *Tenants) apply(n *tenant, spec core.NamespaceSpec) {
	before := n.limits.Load()
	if before == nil {
		before = &core.NamespaceSpec{Name: n.name}
	}
	if *before == spec && isClosed(n.known) {
		return
	}
	hosts := max(n.hosts, t.look())
	if spec.MessagesPerSecond != before.MessagesPerSecond || spec.BytesPerSecond != before.BytesPerSecond {
		n.alone(spec, hosts, t.deps.Now())
	}
	if spec == (core.NamespaceSpec{Name: spec.Name}) {
		n.limits.Store(nil)
	} else {
		n.limits.Store(&spec)
	}
	if spec.BacklogBytes > 0 && before.BacklogBytes == 0 {
		_, gates := t.list()
		for _, g := range gates {
			if g.tenant == n && g.cap.Load() == 0 {
				g.room.Set(t.alone(spec.BacklogBytes), g.room.Mark())
			}
		}
	}
	if !isClosed(n.known) {
		close(n.known)
	}
}

// alone keeps a tenant to a small part of its limits: nobody says what its share is.
func (n *tenant) alone(spec core.NamespaceSpec, hosts int, now time.Time) {
	n.until = time.Time{}
	n.granted.messages = quota.Alone(float64(spec.MessagesPerSecond), hosts)
	n.granted.bytes = quota.Alone(float64(spec.BytesPerSecond), hosts)
	n.messages.Set(n.granted.messages, now)
	n.bytes.Set(n.granted.bytes, now)
}
