package node

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// finder knows which host can be asked for the metadata.
//
// Where metadata are embedded, a host that was found stays the only one: another that claims to be it would be another
// cluster. Where they are in Cassandra, every controller can be asked; see relayChoice.
type finder struct {
	log     *slog.Logger
	members membership.Monitor
	join    []string
	found   atomic.Pointer[core.HostID] // holds the embedded metadata
	relay   relayChoice
	met     func(ctx context.Context) error // the metadata have answered; nil: nobody wants to know
}

// Bounds of the wait for the metadata at the start.
const (
	metadataWait  = time.Minute
	metadataPause = 200 * time.Millisecond
	metadataSay   = 5 * time.Second
)

// relays reports whether the metadata are in Cassandra, behind relays.
func (f *finder) relays() bool {
	return len(f.members.Hosts(membership.RoleMetadata)) == 0 && len(f.members.Hosts(membership.RoleRelay)) > 0
}

// locate is the address of the metadata; CodeUnavailable while they are away.
func (f *finder) locate() (string, error) {
	hosts := f.members.Hosts(membership.RoleMetadata)
	if relays := f.members.Hosts(membership.RoleRelay); len(hosts) == 0 && len(relays) > 0 {
		return f.relay.choose(f.members.Self().Zone, relays, time.Now()).Address, nil
	}
	if len(hosts) == 0 {
		return "", core.Errorf(core.CodeUnavailable, "no live host holds the cluster's metadata; start the one with the role %s", RoleController)
	}
	var id core.HostID
	if p := f.found.Load(); p != nil {
		id = *p
	}
	for _, h := range hosts {
		if h.ID == id || id == "" && len(hosts) == 1 {
			return h.Address, nil
		}
	}
	if id == "" {
		return "", core.Errorf(core.CodeUnavailable, "hosts %s and %s both claim to hold the cluster's metadata; stop the wrong one", hosts[0].ID, hosts[1].ID)
	}
	return "", core.Errorf(core.CodeUnavailable, "host %s, which holds the cluster's metadata, is away; %s claims to hold them too and is not asked", id, hosts[0].ID)
}

// wait returns when the metadata answer. It says in the log what it waits for.
func (f *finder) wait(ctx context.Context, store metadata.Store) error {
	ctx, cancel := context.WithTimeout(ctx, metadataWait)
	defer cancel()
	for said := time.Now().Add(time.Second - metadataSay); ; {
		err := f.ask(ctx, store)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return core.Errorf(core.CodeUnavailable, "the cluster's metadata were not found within %s: %w; "+
				"start the process with the role %s, and name a member's gossip address with --join", metadataWait, err, RoleController)
		}
		if time.Since(said) >= metadataSay {
			said = time.Now()
			f.log.Info("waiting for the host that holds the cluster's metadata", "join", f.join, "hosts", len(f.members.Hosts("")), telemetry.KeyErr, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(metadataPause):
		}
	}
}

// ask reads anything, and keeps to the host that answered.
func (f *finder) ask(ctx context.Context, store metadata.Store) error {
	before := f.members.Hosts(membership.RoleMetadata)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, _, err := store.List(ctx, metadata.Settings, "cluster", "", 1, metadata.One); err != nil {
		return err
	}
	if f.met != nil {
		if err := f.met(ctx); err != nil {
			return err
		}
	}
	if len(before) == 1 {
		f.found.CompareAndSwap(nil, &before[0].ID)
	}
	return nil
}

// seeker is the part that waits until the metadata are found, so that what starts after it can ask them.
type seeker struct {
	finder *finder
	store  metadata.Store
	joiner *joiner
}

var _ role = (*seeker)(nil)

// Routes has none.
func (s *seeker) Routes(*http.ServeMux) {}

// Start waits, at most metadataWait, and not at all where no cluster can be found.
func (s *seeker) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { cancel(s.joiner.Run(ctx)) })
	err := s.finder.wait(ctx, s.store)
	cancel(nil)
	looks.Wait()
	if cause := context.Cause(ctx); err != nil && core.CodeOf(cause) == core.CodeBadArgument {
		return cause
	}
	return err
}

// Run does nothing: calls fail by themselves while the metadata are away.
func (s *seeker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Stop has nothing to release.
func (s *seeker) Stop(context.Context) error { return nil }
