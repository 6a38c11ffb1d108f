package frontend

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/majority"
	"github.com/columbamq/columba/core/stuck"
)

// majorityReport is what a controller says of the metadata.
type majorityReport struct {
	controller core.HostID
	*pb.DescribeMajorityResponse
}

// text says what is the case for a controller without a majority; "" for one that has a majority, or whose metadata are
// embedded.
func (x majorityReport) text() string {
	v := majority.Verdict{State: majority.State(x.GetState())}
	for _, id := range x.GetSilent() {
		v.Silent = append(v.Silent, core.HostID(id))
	}
	for _, id := range x.GetHaveMajority() {
		v.Having = append(v.Having, core.HostID(id))
	}
	if text := v.Text(); text != "" {
		return "no majority: " + text
	}
	return ""
}

// majorityReports are what the controllers say that answer within describeTimeout, by their addresses.
func (s *service) majorityReports(ctx context.Context) map[string]majorityReport {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	var mu sync.Mutex
	out := make(map[string]majorityReport)
	var calls sync.WaitGroup
	for _, h := range s.members.Hosts(roleController) {
		calls.Go(func() {
			d, err := s.peers.Controller(h.Address).DescribeMajority(ctx, connect.NewRequest(&pb.DescribeMajorityRequest{}))
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[h.Address] = majorityReport{h.ID, d.Msg}
		})
	}
	calls.Wait()
	return out
}

// addMajorityReports says of controllers among hosts whether they have a majority of the metadata.
func addMajorityReports(hosts []*pb.HostInfo, all map[string]majorityReport) {
	for _, h := range hosts {
		x, said := all[h.Addr]
		if !said || !slices.Contains(h.Roles, roleController) {
			continue
		}
		h.Majority = x.GetState()
		if text := x.text(); text != "" {
			h.MajoritySince = x.GetSince()
			if h.State == hostUp {
				h.State = text
			} else {
				h.State += "; " + text
			}
		}
	}
}

// withoutMajority is what a controller says when none has a majority of those that answer: one in a cut, if there is
// one. nil: one has, or none answers.
func (s *service) withoutMajority(ctx context.Context) *majorityReport {
	var found *majorityReport
	for _, x := range s.majorityReports(ctx) {
		switch {
		case x.text() == "":
			return nil
		case found == nil || cmp.Or(cmp.Compare(x.GetState(), found.GetState()), cmp.Compare(x.controller, found.controller)) < 0: // cut before outage
			found = &x
		}
	}
	return found
}

// WhyStuck names the oldest message that a group has not settled, and says why. While no controller has a majority of
// the metadata, the answer says so, and whether that is a cut or an outage.
func (s *service) WhyStuck(ctx context.Context, req *connect.Request[pb.WhyStuckRequest]) (*connect.Response[pb.WhyStuckResponse], error) {
	var lacks *majorityReport
	var asked sync.WaitGroup
	asked.Go(func() { lacks = s.withoutMajority(ctx) })
	out, err := s.whyStuck(ctx, req.Msg)
	asked.Wait()
	switch {
	case err == nil && lacks != nil:
		lacks.addTo(out)
	case lacks != nil && slices.Contains([]core.Code{core.CodeUnavailable, core.CodeNoMajority, core.CodeDeadline}, core.CodeOf(err)):
		err = core.Errorf(core.CodeOf(err), "%w; %s", err, lacks.detail())
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// detail names the controller.
func (x majorityReport) detail() string {
	return "controller " + string(x.controller) + " says since " + x.GetSince().AsTime().UTC().Format("15:04:05") + " UTC: " + x.text()
}

// ofMajority are reasons that may follow from the lack of a majority. Others go first, as they say what holds the
// oldest message.
var ofMajority = []stuck.Reason{
	stuck.Nothing, stuck.NoOwner, stuck.OwnerUnreachable, stuck.LeaseExpired, stuck.CheckpointNotSaved, stuck.NotSealed, stuck.NoReplica, stuck.SeekPending,
}

// addTo makes it the reason, or a further one.
func (x majorityReport) addTo(out *pb.WhyStuckResponse) {
	reason := stuck.MetadataOutage
	if x.GetState() == string(majority.Cut) {
		reason = stuck.MetadataCut
	}
	if was := stuck.Reason(out.Reason); slices.Contains(ofMajority, was) {
		if was != stuck.Nothing {
			out.Also = append([]string{out.Reason}, out.Also...)
		}
		out.Reason, out.Text = string(reason), stuck.InGroup(reason.Text(), out.Queue, out.Group)
	} else {
		out.Also = append(out.Also, string(reason))
	}
	if out.Detail != "" {
		out.Detail += "; "
	}
	out.Detail += x.detail()
}
