package client

import (
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// Queue is a queue as it is recorded.
type Queue struct {
	ID      core.QueueID
	Spec    core.QueueSpec
	Created time.Time
}

// Group is a consumer group as it is recorded.
type Group struct {
	ID      core.GroupID
	QueueID core.QueueID
	Spec    core.GroupSpec
	DLQPath string
	Created time.Time

	// LastSeek is where the last seek sent the group, at LastSeekAt; both are zero for a group that begins at its
	// Spec.Start.
	LastSeek   core.Start
	LastSeekAt time.Time
	// Note is what that place does not concern: messages that were published beyond a cut of the network. Empty: nothing.
	Note string
}

// ExtentInfo is an extent as users see it.
type ExtentInfo struct {
	Extent    core.ExtentID
	Queue     string
	Kind      core.ExtentKind
	Horizon   core.Horizon // of a timer extent: how far ahead its messages were due at most
	Due       time.Time    // of a sealed timer extent: by then its last message is due
	State     core.ExtentState
	Input     string
	Replicas  []string
	Copies    []string // stores that have the whole extent, once it is sealed
	LastSeq   core.Seq
	LostFrom  core.Seq // from here to LastSeq no store has it any more, and readers skip it; 0: nothing is known to be lost
	Bytes     uint64
	Created   time.Time
	ReadScope string // who reads it: "own" (the groups of its queue), "merged" (one group), "purged" (nobody any more), "staging" (nobody yet)
}

// HostInfo is a host of the cluster, or one that was seen within the last hour and is gone.
type HostInfo struct {
	Host  core.HostID
	Roles []string
	Addr  string
	Zone  string
	State string    // up; refuses: a store that takes no new extents; clock +7s: up, its clock is wrong; down: it does not answer; left: it stopped in good order
	Since time.Time // of a host that is down or left: when the answering server noticed it
	Run   string
}

// Depth is the number of messages of a group in each state.
type Depth struct {
	Queue, Group string
	Ready        uint64
	InFlight     uint64
	Delayed      uint64 // wait for their time: the sum of the three below
	// DelayedPublish were published with a delay or a time; DelayedRetry wait after a failed attempt, or are on their
	// way to the dead letter queue; DelayedGroup wait for the group's delay.
	DelayedPublish, DelayedRetry, DelayedGroup uint64
	Blocked                                    uint64 // exhausted, in a group that blocks
	Retries                                    uint64 // of ready, in flight and delayed: failed before. GroupSpec.MaxDelayedRetries bounds these
	Dead                                       uint64
	OldestReady                                time.Duration // age, whole milliseconds
	BreakerOpen                                time.Duration // for how long the breaker of the group has been open or half-open; 0: it is closed
	AckRate                                    float64       // per second, over the last ten seconds or a little more
	PublishRate                                float64       // of the queue, the same
	Drain                                      time.Duration // until only blocked and dead messages are left, at these rates; negative: at these rates the backlog does not shrink
	// UnknownExtents is the number of extents that could not be counted fully; the counts are then lower bounds.
	UnknownExtents int
}

// DeadLetter is a message that exhausted its attempts in a group, was rejected or expired, with its history.
type DeadLetter struct {
	ID            MessageID
	Receipt       core.Receipt // in the dead letter queue
	Origin        core.Receipt // in the queue it came from
	Message       Message
	Attempts      int
	Reason        string // code
	Error         string // the last failure's text
	FirstEnqueued time.Time
	DeadSince     time.Time
	LastConsumer  string
	History       []EarlierFailure // earlier failures, each ended by a merge: the last eight, the oldest first
}

// EarlierFailure says why the message was a dead letter before it was merged back into its group.
type EarlierFailure struct {
	Attempts     int
	Reason       string // code
	Error        string
	DeadSince    time.Time
	LastConsumer string
}

// DelayedMessage is a message that waits for its time. Fields that are not known are zero.
type DelayedMessage struct {
	ID           MessageID
	Receipt      core.Receipt // Client.Cancel takes it
	Source       string       // of the delay: "publish", "retry", "group"
	Due          time.Time    // it is not delivered before
	Message      Message      // without its body
	Enqueued     time.Time    // when it was published
	Attempts     int          // of the group so far
	Reason       string       // of the last failed attempt: "nack", "lock_timeout"
	Error        string       // text of the last nack
	LastConsumer string
	Origin       core.Receipt // in the queue, of a message in the group's retry queue
	DelayedSince time.Time    // of a message in the group's retry queue: since when it is there
}

// StoredMessage is a message at rest.
type StoredMessage struct {
	Receipt  core.Receipt
	Enqueued time.Time
	Message  Message
}

// ParseReceipt reads extent:seq, the form that Receipt.String writes. "" is the zero receipt.
func ParseReceipt(s string) (core.Receipt, error) {
	if s == "" {
		return core.Receipt{}, nil
	}
	return core.ParseReceipt(s)
}

func queueOf(p *pb.Queue, err error) (Queue, error) {
	if err != nil {
		return Queue{}, err
	}
	id, err := parseID(p.GetId())
	return Queue{ID: core.QueueID{ID: id}, Spec: convert.QueueSpec(p.GetSpec()), Created: timeFromProto(p.GetCreated())}, err
}

func groupOf(p *pb.Group, err error) (Group, error) {
	if err != nil {
		return Group{}, err
	}
	id, err := parseID(p.GetId())
	if err != nil {
		return Group{}, err
	}
	queue, err := parseID(p.GetQueueId())
	if err != nil {
		return Group{}, err
	}
	spec, err := convert.GroupSpec(p.GetSpec(), time.Now())
	if err != nil {
		return Group{}, err
	}
	out := Group{
		ID: core.GroupID{ID: id}, QueueID: core.QueueID{ID: queue}, Spec: spec,
		DLQPath: p.GetDlqPath(), Created: timeFromProto(p.GetCreated()), LastSeekAt: timeFromProto(p.GetLastSeekAt()),
		Note: p.GetNote(),
	}
	if p.GetLastSeek() != "" {
		out.LastSeek, err = core.ParseStart(p.GetLastSeek(), time.Now())
	}
	return out, err
}

func extentOf(p *pb.ExtentInfo) (ExtentInfo, error) {
	id, err := parseID(p.Extent)
	return ExtentInfo{
		Extent: core.ExtentID{ID: id}, Queue: p.Queue, Kind: core.ExtentKind(p.Kind), Horizon: core.Horizon(p.Horizon), Due: timeFromProto(p.Due), State: core.ExtentState(p.State),
		Input: p.Input, Replicas: p.Replicas, Copies: p.Copies, LastSeq: core.Seq(p.LastSeq), LostFrom: core.Seq(p.LostFrom), Bytes: p.Bytes,
		Created: timeFromProto(p.Created), ReadScope: p.ReadScope,
	}, err
}

func hostOf(p *pb.HostInfo) (HostInfo, error) {
	h := HostInfo{Host: core.HostID(p.Host), Roles: p.Roles, Addr: p.Addr, Zone: p.Zone, State: p.State, Run: p.Run}
	if p.Since != nil {
		h.Since = p.Since.AsTime()
	}
	return h, nil
}

func depthOf(p *pb.Depth) (Depth, error) {
	return Depth{
		Queue: p.Queue, Group: p.Group, Ready: p.Ready, InFlight: p.InFlight, Delayed: p.Delayed,
		DelayedPublish: p.DelayedPublish, DelayedRetry: p.DelayedRetry, DelayedGroup: p.DelayedGroup, Blocked: p.Blocked, Retries: p.Retries,
		Dead: p.Dead, OldestReady: time.Duration(p.OldestReadyMs) * time.Millisecond,
		AckRate: p.AckRate, PublishRate: p.PublishRate, Drain: time.Duration(p.DrainMs) * time.Millisecond, UnknownExtents: int(p.UnknownExtents),
		BreakerOpen: time.Duration(p.BreakerOpenMs) * time.Millisecond,
	}, nil
}

func deadLetterOf(p *pb.DeadLetter) (DeadLetter, error) {
	id, err := parseID(p.Id)
	if err != nil {
		return DeadLetter{}, err
	}
	receipt, err := ParseReceipt(p.Receipt)
	if err != nil {
		return DeadLetter{}, err
	}
	origin, err := ParseReceipt(p.Origin)
	if err != nil {
		return DeadLetter{}, err
	}
	var history []EarlierFailure
	for _, l := range p.History {
		history = append(history, EarlierFailure{int(l.Attempts), l.Reason, l.Error, timeFromProto(l.DeadSince), l.LastConsumer})
	}
	m, err := messageFromProto(p.Message)
	return DeadLetter{
		History: history,
		ID:      MessageID{ID: id}, Receipt: receipt, Origin: origin, Message: m, Attempts: int(p.Attempts), Reason: p.Reason,
		Error: p.Error, FirstEnqueued: timeFromProto(p.FirstEnqueued), DeadSince: timeFromProto(p.DeadSince), LastConsumer: p.LastConsumer,
	}, err
}

func delayedOf(p *pb.DelayedMessage) (DelayedMessage, error) {
	out := DelayedMessage{
		Source: p.Source, Due: timeFromProto(p.Due), Enqueued: timeFromProto(p.Enqueued), Attempts: int(p.Attempts), Reason: p.Reason, Error: p.Error,
		LastConsumer: p.LastConsumer, DelayedSince: timeFromProto(p.DelayedSince),
	}
	var err error
	if p.Id != "" {
		if out.ID.ID, err = parseID(p.Id); err != nil {
			return DelayedMessage{}, err
		}
	}
	if out.Receipt, err = ParseReceipt(p.Receipt); err != nil {
		return DelayedMessage{}, err
	}
	if out.Origin, err = ParseReceipt(p.Origin); err != nil {
		return DelayedMessage{}, err
	}
	if p.Message != nil {
		out.Message, err = messageFromProto(p.Message)
	}
	return out, err
}

func storedOf(p *pb.StoredMessage) (StoredMessage, error) {
	receipt, err := ParseReceipt(p.Receipt)
	if err != nil {
		return StoredMessage{}, err
	}
	m, err := messageFromProto(p.Message)
	return StoredMessage{Receipt: receipt, Enqueued: timeFromProto(p.Enqueued), Message: m}, err
}
