package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

const (
	// describeAtOnce bounds the calls of one round.
	describeAtOnce = 64
	// restart is for how long a store that does not answer is asked more often.
	restart = 30 * time.Second
)

// watchStores asks all stores for their descriptions until ctx ends: every now and then, more often while one does not
// answer, and at once when membership changes.
func (h *Host) watchStores(ctx context.Context) {
	stop := h.deps.Members.Changed(func() { poke(h.describeNow) })
	defer stop()
	next := time.NewTimer(h.cfg.DescribeEvery)
	defer next.Stop()
	for ctx.Err() == nil {
		if h.describeStores(ctx) {
			h.storesChanged()
		}
		pause := h.cfg.DescribeEvery
		if h.stores.Silent(h.deps.now().Add(-restart)) { // membership shows stores a moment before they serve
			pause /= 10
		}
		next.Reset(pause)
		select {
		case <-ctx.Done():
		case <-next.C:
		case <-h.describeNow:
		}
	}
}

// poke wakes a loop that may be awake.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// describeStores asks every store once, side by side; changed says that a store came, went, or has another disk or run.
func (h *Host) describeStores(ctx context.Context) (changed bool) {
	asked := h.stores.Adopt(h.deps.Members.Hosts("storehost"), h.deps.now())
	var g errgroup.Group
	g.SetLimit(describeAtOnce)
	var mu sync.Mutex
	for _, m := range asked {
		g.Go(func() error {
			d, err := h.describe(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			changed = h.noteDescription(m.ID, d, err) || changed
			return nil
		})
	}
	g.Wait()
	h.metrics.stores.Set(float64(h.stores.Count(catalog.Store.Answering)))
	return changed
}

func (h *Host) describe(ctx context.Context, m membership.Host) (*pb.StoreDescription, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.DescribeTimeout)
	defer cancel()
	resp, err := h.deps.Peers.Store(m.Address).Describe(ctx, connect.NewRequest(&pb.DescribeRequest{}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	if got := core.HostID(resp.Msg.GetIdentity().GetStore()); got != m.ID {
		return nil, core.Errorf(core.CodeConflict, "store %s answers at %s", got, m.Address)
	}
	return resp.Msg, nil
}

func (h *Host) noteDescription(id core.HostID, d *pb.StoreDescription, err error) (changed bool) {
	if err != nil {
		return h.stores.Failed(id, err)
	}
	identity, err := convert.Identity(d.Identity)
	if err != nil {
		return h.stores.Failed(id, err)
	}
	load := placement.Load{
		Free: d.FreeBytes, Total: d.TotalBytes, BytesPerSecond: d.AppendBytesPerSecond, Sync: time.Duration(d.SyncMicros) * time.Microsecond,
		Full: d.Full,
	}
	old, changed := h.stores.Answered(id, identity, load, d.RefusesAppends, h.deps.now())
	if !old.Disk.IsZero() && old.Disk != identity.Disk {
		h.log.Error("a store came back with another disk: its replicas are gone, and are copied again from other stores", "store", id, "disk", identity.Disk, "was", old.Disk)
	}
	return changed
}

// callFailed notes how a call to a store ended. When nobody listens at its address the next extent does not go there,
// and a description is asked for. A refusal that the store itself sent says that it is there.
func (h *Host) callFailed(id core.HostID, rpc error) {
	if connect.IsWireError(rpc) {
		return
	}
	if err := convert.FromRPC(rpc); core.CodeOf(err) == core.CodeUnavailable && h.stores.Failed(id, err) {
		poke(h.describeNow)
	}
}

// storeCandidates are the stores that may get a replica, those with a wrong clock as the last; full is how many answer,
// but have no space left.
func (h *Host) storeCandidates(avoid []core.HostID) (out []placement.Candidate, full int) {
	for _, st := range h.stores.All() {
		c := st.Candidate()
		switch {
		case st.Refuses && st.Load.NearlyFull():
			full++
			continue
		case st.Refuses:
			continue
		case h.skewed.wrong(st.ID):
			c.Tier = placement.Skewed
		case c.Tier == placement.Full:
		case slices.Contains(avoid, st.ID):
			c.Tier = placement.Avoided
		}
		out = append(out, c)
	}
	return out, full
}

// mostPassedOver is how many stores an error names.
const mostPassedOver = 4

// passedOver says which stores get no replica, why, and what to do.
func (h *Host) passedOver() string {
	stores := h.stores.Which(func(st catalog.Store) bool { return st.Refuses || !st.Answering() })
	if len(stores) == 0 {
		return "start more stores"
	}
	var out []string
	for _, st := range stores[:min(len(stores), mostPassedOver)] {
		switch {
		case !st.Answering():
			out = append(out, string(st.ID)+" does not answer")
		case st.Load.NearlyFull():
			out = append(out, string(st.ID)+" has no space left")
		default:
			out = append(out, string(st.ID)+" refuses writes, because its log failed or its disk cannot be written")
		}
	}
	if more := len(stores) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more stores cannot take one either", more))
	}
	return strings.Join(out, ", ") + ": free space, read the logs of these stores and restart them, or start more stores"
}

// pardon makes the least bad of the avoided stores good, the worst of which come first, until as many are good as are
// needed: one that broke a moment ago is not drawn while one that broke before it may be back.
func pardon(from []placement.Candidate, avoid []core.HostID, least int) {
	good := countGood(from)
	for _, id := range slices.Backward(avoid) {
		if good >= least {
			return
		}
		i := slices.IndexFunc(from, func(c placement.Candidate) bool { return c.ID == id && c.Tier == placement.Avoided })
		if i >= 0 {
			from[i].Tier = placement.Good
			good++
		}
	}
}

func countGood(from []placement.Candidate) (n int) {
	for _, c := range from {
		if c.Tier == placement.Good {
			n++
		}
	}
	return n
}

// storeAt is the service of a store, wherever it was last heard of.
func (h *Host) storeAt(id core.HostID) (columbav1connect.StoreServiceClient, error) {
	if st, ok := h.stores.Get(id); ok && st.Address != "" {
		return h.deps.Peers.Store(st.Address), nil
	}
	if m, ok := membership.Find(h.deps.Members, id); ok {
		return h.deps.Peers.Store(m.Address), nil
	}
	return nil, core.Errorf(core.CodeUnavailable, "store %s is not there", id)
}

// reached is how replicas are called.
type reached struct{ h *Host }

// At implements replicas.Stores.
func (x reached) At(id core.HostID) (columbav1connect.StoreServiceClient, error) {
	return x.h.storeAt(id)
}

// Patience implements replicas.Stores: a store that has not answered for a while gets no more than a question how it
// fares.
func (x reached) Patience(id core.HostID) time.Duration {
	if st, known := x.h.stores.Get(id); known && !st.Answering() {
		return min(x.h.cfg.DescribeTimeout, x.h.cfg.CallTimeout)
	}
	return x.h.cfg.CallTimeout
}

// Heard implements replicas.Stores.
func (x reached) Heard(id core.HostID, rpc error) { x.h.callFailed(id, rpc) }
