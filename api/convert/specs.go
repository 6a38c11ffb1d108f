package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// QueueSpec reads what a user chose; unset fields stay zero.
func QueueSpec(p *pb.QueueSpec) core.QueueSpec {
	return core.QueueSpec{
		Path:                p.GetPath(),
		Consistency:         core.Consistency(p.GetConsistency()),
		Durability:          core.Durability(p.GetDurability()),
		Replicas:            int(p.GetReplicas()),
		MinReplicas:         int(p.GetMinReplicas()),
		ConsumedRetention:   p.GetConsumedRetention().AsDuration(),
		UnconsumedRetention: p.GetUnconsumedRetention().AsDuration(),
		MaxMessage:          int(p.GetMaxMessage()),
		Status:              core.Status(p.GetStatus()),
		MaxBacklog:          p.GetMaxBacklog(),
	}
}

func QueueSpecToProto(s core.QueueSpec) *pb.QueueSpec {
	return &pb.QueueSpec{
		Path:                s.Path,
		Consistency:         string(s.Consistency),
		Durability:          string(s.Durability),
		Replicas:            int32(s.Replicas),
		MinReplicas:         int32(s.MinReplicas),
		ConsumedRetention:   DurationToProto(s.ConsumedRetention),
		UnconsumedRetention: DurationToProto(s.UnconsumedRetention),
		MaxMessage:          int64(s.MaxMessage),
		Status:              string(s.Status),
		MaxBacklog:          s.MaxBacklog,
	}
}

// NamespaceSpec reads what a user chose; unset fields stay zero.
func NamespaceSpec(p *pb.NamespaceSpec) core.NamespaceSpec {
	return core.NamespaceSpec{
		Name: p.GetName(), MaxQueues: p.GetMaxQueues(), MessagesPerSecond: p.GetMessagesPerSecond(), BytesPerSecond: p.GetBytesPerSecond(), BacklogBytes: p.GetBacklogBytes(),
	}
}

func NamespaceSpecToProto(s core.NamespaceSpec) *pb.NamespaceSpec {
	return &pb.NamespaceSpec{
		Name: s.Name, MaxQueues: s.MaxQueues, MessagesPerSecond: s.MessagesPerSecond, BytesPerSecond: s.BytesPerSecond, BacklogBytes: s.BacklogBytes,
	}
}

// GroupSpec reads what a user chose; unset fields stay zero. now resolves a start of "-2h".
func GroupSpec(p *pb.GroupSpec, now time.Time) (core.GroupSpec, error) {
	s := core.GroupSpec{
		Queue:         p.GetQueue(),
		Name:          p.GetName(),
		LockTimeout:   p.GetLockTimeout().AsDuration(),
		MaxDeliveries: int(p.GetMaxDeliveries()),
		Delay:         p.GetDelay().AsDuration(),
		SkipOlder:     p.GetSkipOlder().AsDuration(),
		Exhausted:     core.Exhausted(p.GetExhausted()),
		Breaker:       int(p.GetBreaker()),
		Status:        core.Status(p.GetStatus()),

		NoNackThrottle: p.GetNoNackThrottle(),
		Delivery:       core.Delivery(p.GetDelivery()),
		Expired:        core.Expired(p.GetExpired()),

		MaxDelayedRetries: p.GetMaxDelayedRetries(),
	}
	if b := p.GetBackoff(); b != nil {
		s.Backoff = core.Backoff{Min: b.Min.AsDuration(), Factor: b.Factor, Max: b.Max.AsDuration(), Jitter: b.Jitter}
	}
	if p.GetStart() == "" {
		return s, nil
	}
	start, err := core.ParseStart(p.GetStart(), now)
	if err != nil {
		return s, core.Errorf(core.CodeOf(err), "start: %w", err)
	}
	s.Start = start
	return s, nil
}

func GroupSpecToProto(s core.GroupSpec) *pb.GroupSpec {
	out := &pb.GroupSpec{
		Queue:         s.Queue,
		Name:          s.Name,
		Start:         s.Start.String(),
		LockTimeout:   DurationToProto(s.LockTimeout),
		MaxDeliveries: int32(s.MaxDeliveries),
		Delay:         DurationToProto(s.Delay),
		SkipOlder:     DurationToProto(s.SkipOlder),
		Exhausted:     string(s.Exhausted),
		Breaker:       int32(s.Breaker),
		Status:        string(s.Status),

		NoNackThrottle: s.NoNackThrottle,
		Delivery:       string(s.Delivery),
		Expired:        string(s.Expired),

		MaxDelayedRetries: s.MaxDelayedRetries,
	}
	if b := s.Backoff; b != (core.Backoff{}) {
		out.Backoff = &pb.Backoff{Min: DurationToProto(b.Min), Factor: b.Factor, Max: DurationToProto(b.Max), Jitter: b.Jitter}
	}
	return out
}

// Time leaves the zero time unset.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
