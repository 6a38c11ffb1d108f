package frontend

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/frontend/lengths"
	"github.com/columbamq/columba/metadata"
)

// finding is what one host, or the metadata, know of why a group does not go on.
type finding struct {
	*pb.WhyStuckResponse
	since time.Time // when its message was enqueued, or its extent made
}

// findings keeps the one of the oldest message. Safe for concurrent use.
type findings struct {
	mu struct {
		sync.Mutex
		oldest  finding
		extents uint32
	}
}

func (f *findings) add(x finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.extents += x.GetExtents()
	if f.mu.oldest.WhyStuckResponse == nil || x.since.Before(f.mu.oldest.since) {
		f.mu.oldest = x
	}
}

// whyStuck names the oldest message that a group has not settled, and says why: as the owners of its shares see it, and
// of those without an owner as the metadata do.
func (s *service) whyStuck(ctx context.Context, req *pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
	q, group, err := s.groupToShow(ctx, req.GetQueue(), req.GetGroup())
	if err != nil {
		return nil, err
	}
	extents, err := s.gauge().Ends(ctx, q.ID, core.GroupID{})
	if err != nil {
		return nil, err
	}
	w, _, err := s.allWork(ctx, group, extents)
	if err != nil {
		return nil, err
	}
	s.gauge().Measure(ctx, w.alone)
	f, err := s.findings(ctx, group, w)
	if err != nil {
		return nil, err
	}
	s.addUndecided(ctx, q.ID, extents, f)
	out := f.mu.oldest.WhyStuckResponse
	if out == nil {
		out = &pb.WhyStuckResponse{Reason: string(stuck.Nothing), Text: stuck.Nothing.Text()}
	} else if !q.Spec.Status.CanConsume() || !group.Spec.Status.CanConsume() {
		out.Also = append([]string{out.Reason}, out.Also...)
		out.Reason, out.Text = string(stuck.Disabled), stuck.Disabled.Text()
		out.Detail = statuses(q.Spec.Status, group.Spec.Status)
	}
	if group.Rewind != nil {
		addPendingSeek(out)
	}
	if out.Reason == string(stuck.Nothing) {
		out.Detail = beginning(group)
	}
	out.Queue, out.Group, out.Extents = group.Spec.Queue, group.Spec.Name, f.mu.extents
	out.Text = stuck.InGroup(out.Text, out.Queue, out.Group)
	s.setAge(out.Message)
	return out, nil
}

// statuses says which of a queue and a group delivers nothing.
func statuses(queue, group core.Status) string {
	var out []string
	if !group.CanConsume() {
		out = append(out, "the group is "+string(group))
	}
	if !queue.CanConsume() {
		out = append(out, "the queue is "+string(queue))
	}
	return strings.Join(out, ", ")
}

// beginning says of a group that has settled all of its messages which messages of the queue are not among them; ""
// when all are.
func beginning(group metadata.GroupRecord) string {
	start, at, what := group.Spec.Start, group.Created, "the group starts at "
	if seek := group.LastSeek; seek != nil {
		start, at, what = seek.To, seek.At, "the last seek sent the group to "
	}
	if start.Mode == core.StartEarliest {
		return ""
	}
	what += start.String()
	if start.Mode == core.StartLatest {
		what += ", which was " + at.UTC().Format(time.RFC3339)
	}
	return what + ": it does not get messages that were published before. " +
		stuck.InGroup("`columba seek QUEUE GROUP --to earliest --dry-run` counts what it would get with them", group.Spec.Queue, group.Spec.Name)
}

// addPendingSeek adds that a seek is under way: the reason of a group that has nothing else to wait for.
func addPendingSeek(out *pb.WhyStuckResponse) {
	if out.Reason == string(stuck.Nothing) {
		out.Reason, out.Text = string(stuck.SeekPending), stuck.SeekPending.Text()
		return
	}
	out.Also = append(out.Also, string(stuck.SeekPending))
}

// findings asks all who know.
func (s *service) findings(ctx context.Context, group metadata.GroupRecord, w work) (*findings, error) {
	f := &findings{}
	req := &pb.WhyStuckRequest{Queue: group.Spec.Queue, Group: group.Spec.Name}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for _, o := range w.owners {
		g.Go(func() error {
			found, err := askOne(gctx, o.Host, askTimeout, req, func(addr string) rpc[pb.WhyStuckRequest, pb.WhyStuckResponse] { return s.peers.Output(addr).WhyStuck })
			switch {
			case err != nil && o.shares == 0:
			case err != nil:
				f.add(finding{&pb.WhyStuckResponse{
					Reason: string(stuck.OwnerUnreachable), Text: stuck.OwnerUnreachable.Text(), Detail: string(o.ID) + ": " + err.Error(), Extents: uint32(o.shares),
				}, o.oldest.ID.Time()})
			case found.GetMessage() != nil:
				f.add(finding{found, sinceOf(found.GetMessage())})
			}
			return nil
		})
	}
	for _, l := range w.alone {
		g.Go(func() error {
			found, err := s.ownerless(gctx, group, l)
			if err == nil && found != nil {
				f.add(finding{found, l.ID.Time()})
			}
			return err
		})
	}
	return f, g.Wait()
}

// undecidedTimeout bounds the question to a controller which extents cannot be sealed: the rest of the answer does
// without.
const undecidedTimeout = time.Second

// addUndecided adds the extents of the queue that stay sealing, which the controller knows the reason of. Nobody has a
// message of them to show.
func (s *service) addUndecided(ctx context.Context, queue core.QueueID, extents []*lengths.Length, f *findings) {
	if !slices.ContainsFunc(extents, func(l *lengths.Length) bool { return l.Seal.State == core.ExtentSealing }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, undecidedTimeout)
	defer cancel()
	// Each controller knows why it cannot seal them, and those that another one began to seal a moment ago it does not
	// know.
	lists, _, err := askAll(ctx, s.members.Hosts(roleController), roleController, &pb.ListUndecidedRequest{Queue: queue.ID[:]}, func(addr string) rpc[pb.ListUndecidedRequest, pb.ListUndecidedResponse] {
		return s.peers.Controller(addr).ListUndecided
	})
	if err != nil {
		return
	}
	list := slices.MaxFunc(lists, func(a, b *pb.ListUndecidedResponse) int { return cmp.Compare(a.GetCount(), b.GetCount()) })
	if len(list.GetExtents()) == 0 {
		return
	}
	first := list.GetExtents()[0]
	detail := "the oldest is " + first.GetExtent() + ": " + first.GetReason()
	if away := first.GetAway(); len(away) > 0 {
		detail += "; if the disk of " + away[0] + " is lost for good: columba seal --force --all-of-store " + away[0]
	}
	f.addSealing(&pb.WhyStuckResponse{Reason: string(stuck.NotSealed), Text: stuck.NotSealed.Text(), Detail: detail, Extents: list.GetCount()})
}

// addSealing adds extents that stay sealing: they are the reason when nothing else is found, or only what follows from
// them.
func (f *findings) addSealing(x *pb.WhyStuckResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch was := f.mu.oldest.WhyStuckResponse; {
	case was == nil:
		f.mu.oldest, f.mu.extents = finding{WhyStuckResponse: x}, x.GetExtents()
	case was.GetReason() == string(stuck.ChainOrder), was.GetReason() == string(stuck.NoReplica) && was.GetMessage() == nil:
		x.Also, x.Message = append([]string{was.GetReason()}, was.GetAlso()...), was.GetMessage()
		f.mu.oldest.WhyStuckResponse = x
	default:
		was.Also = append(was.Also, x.GetReason())
	}
}

// sinceOf orders messages of different hosts; one that could not be read counts from when its extent was made.
func sinceOf(m *pb.Standing) time.Time {
	if m.GetEnqueued() != nil {
		return m.GetEnqueued().AsTime()
	}
	if at, err := core.ParseReceipt(m.GetReceipt()); err == nil {
		return at.Extent.ID.Time()
	}
	return time.Time{}
}

// ownerless is what the checkpoints say of a share that nobody owns; nil when nothing of it is left.
func (s *service) ownerless(ctx context.Context, group metadata.GroupRecord, l *lengths.Length) (*pb.WhyStuckResponse, error) {
	if l.Damage != nil {
		return &pb.WhyStuckResponse{Reason: string(stuck.RowDamaged), Text: stuck.RowDamaged.Text(), Detail: l.Damage.Error(), Extents: 1}, nil
	}
	state, err := s.saved(ctx, group, l.Extent)
	if err != nil {
		return nil, err
	}
	seq := state.Frontier() + 1
	if l.Known && seq > l.Last {
		return nil, nil
	}
	return &pb.WhyStuckResponse{
		Reason: string(stuck.NoOwner), Text: stuck.NoOwner.Text(), Extents: 1, Message: savedStanding(l.ID, state.Standing(seq)),
	}, nil
}

// setAge tells how old a message is, by this host's clock.
func (s *service) setAge(m *pb.Standing) {
	if m.GetEnqueued() != nil {
		m.AgeMs = max(0, s.now().Sub(m.GetEnqueued().AsTime()).Milliseconds())
	}
}

// savedStanding is where a message stood when it was saved last.
func savedStanding(extent core.ExtentID, st dispatch.Standing) *pb.Standing {
	out := &pb.Standing{
		State: words.StateOf(st.Place), Receipt: core.Receipt{Extent: extent, Seq: st.Seq}.String(), Attempts: int32(st.Attempts),
		LastFailure: st.Failure.String(), LastError: strings.ToValidUTF8(st.Text, "\uFFFD"),
	}
	if !st.Until.IsZero() {
		out.Until = timestamppb.New(st.Until)
	}
	if st.Place == dispatch.PlaceInFlight {
		out.Holder = &pb.Holder{}
	}
	return out
}
