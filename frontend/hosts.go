package frontend

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/clocks"
)

// States of a host in a list of hosts.
const (
	hostUp      = "up"
	hostRefuses = "refuses" // a store host that is up and takes no new extents: its log has failed, its disk hangs or is full
	// A controller that is up and lacks a majority of the metadata says so, see majorityReport.
	hostDown = "down" // it does not answer
	hostLeft = "left" // it stopped in good order
)

// describeTimeout is how long a list of hosts waits for stores to say how they fare.
const describeTimeout = time.Second

// ListHosts answers the hosts that the membership sees, and those that were seen here within the last hour and are
// gone, by host.
func (s *service) ListHosts(ctx context.Context, _ *connect.Request[pb.ListHostsRequest]) (*connect.Response[pb.ListHostsResponse], error) {
	out := &pb.ListHostsResponse{KnownSince: timestamppb.New(s.knownSince())}
	for _, h := range s.members.Hosts("") {
		out.Hosts = append(out.Hosts, hostInfo(h, hostUp))
	}
	var said map[string]majorityReport
	var asked sync.WaitGroup
	asked.Go(func() { said = s.majorityReports(ctx) })
	s.askClocks(ctx, out.Hosts)
	s.askStores(ctx, out.Hosts)
	asked.Wait()
	addMajorityReports(out.Hosts, said)
	for _, g := range s.members.Gone() {
		state := hostDown
		if g.Left {
			state = hostLeft
		}
		h := hostInfo(g.Host, state)
		h.Since = timestamppb.New(g.Since)
		out.Hosts = append(out.Hosts, h)
	}
	slices.SortFunc(out.Hosts, func(a, b *pb.HostInfo) int { return cmp.Compare(a.Host, b.Host) })
	return connect.NewResponse(out), nil
}

// knownSince is since when no host can have gone without being in the list of hosts.
func (s *service) knownSince() time.Time {
	if since := s.now().Add(-membership.RememberGone); since.After(s.began) {
		return since
	}
	return s.began
}

// hostInfo is a host as users see it, without the roles that nobody chooses.
func hostInfo(h membership.Host, state string) *pb.HostInfo {
	roles := slices.DeleteFunc(slices.Clone(h.Roles), func(role string) bool { return slices.Contains(membership.Marks, role) })
	return &pb.HostInfo{Host: string(h.ID), Roles: roles, Addr: h.Address, Zone: h.Zone, State: state, Run: h.Run.String()}
}

// askClocks puts into the state of each host whose clock differs from the others' by how much it does.
func (s *service) askClocks(ctx context.Context, hosts []*pb.HostInfo) {
	reader := clocks.New(s.peers.Dial, s.now)
	defer reader.Close()
	readings, silent := reader.Read(ctx, s.members)
	verdicts := skew.Judge(readings, silent, nil)
	for _, h := range hosts {
		if v := verdicts[core.HostID(h.Host)]; v.State != skew.Right {
			h.State = skew.Text(v.Off)
		}
	}
}

// askStores says of the stores among hosts that are up whether they take new extents. One that does not answer stays as
// membership sees it.
func (s *service) askStores(ctx context.Context, hosts []*pb.HostInfo) {
	var g errgroup.Group
	g.SetLimit(fanOut)
	for _, h := range hosts {
		if !slices.Contains(h.Roles, roleStore) {
			continue
		}
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, describeTimeout)
			defer cancel()
			d, err := s.peers.Store(h.Addr).Describe(ctx, connect.NewRequest(&pb.DescribeRequest{}))
			if connect.IsWireError(err) || err == nil && d.Msg.RefusesAppends {
				h.State = hostRefuses
			}
			return nil
		})
	}
	_ = g.Wait()
}
