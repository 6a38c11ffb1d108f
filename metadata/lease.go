package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// LeaseRecord gives one run of a host the exclusive right to a piece of work until Expires. Epoch goes up by one with each
// change of the holder; what the holder writes carries it.
//
//	free ──acquire──▶ held ──renew──▶ held
//	 ▲                 │ │
//	 └──release────────┘ └──expired, acquired by another──▶ held, epoch + 1
type LeaseRecord struct {
	Name    string      `json:"name"`
	Holder  core.HostID `json:"holder"`
	Run     core.RunID  `json:"run"`
	Epoch   uint64      `json:"epoch"`
	Expires time.Time   `json:"expires"` // zero = free
}

// HeldBy reports whether that run of the host holds the lease at now.
func (l LeaseRecord) HeldBy(holder core.HostID, run core.RunID, now time.Time) bool {
	return l.Holder == holder && l.Run == run && now.Before(l.Expires)
}

// Same reports whether both are one holding: no one else had the lease between them.
func (l LeaseRecord) Same(o LeaseRecord) bool {
	return l.Name == o.Name && l.Holder == o.Holder && l.Run == o.Run && l.Epoch == o.Epoch
}

// acquired is l after that run asked for it: CodeConflict while another holds it.
func (l LeaseRecord) acquired(holder core.HostID, run core.RunID, now time.Time, ttl time.Duration) (LeaseRecord, error) {
	if l.HeldBy(holder, run, now) {
		l.Expires = later(l.Expires, now.Add(ttl))
		return l, nil
	}
	if now.Before(l.Expires) {
		return l, core.Errorf(core.CodeConflict, "lease %s is held by %s until %s", l.Name, l.Holder, l.Expires.UTC().Format(time.RFC3339))
	}
	return LeaseRecord{Name: l.Name, Holder: holder, Run: run, Epoch: l.Epoch + 1, Expires: now.Add(ttl).UTC()}, nil
}

// AcquireLease takes the lease of that name for ttl from now, or prolongs it when this run holds it. Errors: CodeConflict while
// another holds it (the record returned is the holder's), CodeUnavailable, CodeUnknown (ask again: it is told then).
func AcquireLease(ctx context.Context, s Store, name string, holder core.HostID, run core.RunID, now time.Time, ttl time.Duration) (LeaseRecord, error) {
	ctx, cancel := Deadline(ctx)
	defer cancel()
	key := LeaseKey(name)
	first, _ := LeaseRecord{Name: name}.acquired(holder, run, now, ttl)
	for range 2 { // the second time the row is there: leases are never deleted
		l, err := Change(ctx, s, Leases, key, func(l *LeaseRecord) (err error) {
			*l, err = l.acquired(holder, run, now, ttl)
			return err
		})
		if core.CodeOf(err) != core.CodeNotFound {
			return l, err
		}
		err = Create(ctx, s, Leases, key, first)
		if core.CodeOf(err) != core.CodeExists {
			return first, err
		}
	}
	return LeaseRecord{}, core.Errorf(core.CodeUnavailable, "lease %s was created and is not found", name)
}

// RenewLease prolongs a holding to ttl from now; also an expired one that no one else took. CodeFenced when it is lost: the
// work done under it must stop.
func RenewLease(ctx context.Context, s Store, held LeaseRecord, now time.Time, ttl time.Duration) (LeaseRecord, error) {
	l, err := Change(ctx, s, Leases, LeaseKey(held.Name), func(l *LeaseRecord) error {
		if !l.Same(held) || l.Expires.IsZero() {
			return core.Errorf(core.CodeFenced, "lease %s is lost to %s", held.Name, l.Holder)
		}
		l.Expires = later(l.Expires, now.Add(ttl))
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		err = core.Errorf(core.CodeFenced, "lease %s is lost: %w", held.Name, err)
	}
	return l, err
}

// ReleaseLease frees a holding before it expires; one that is lost already is no error.
func ReleaseLease(ctx context.Context, s Store, held LeaseRecord) error {
	_, err := Change(ctx, s, Leases, LeaseKey(held.Name), func(l *LeaseRecord) error {
		if !l.Same(held) || l.Expires.IsZero() {
			return ErrNoChange
		}
		l.Expires = time.Time{}
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b.UTC()
	}
	return a
}
