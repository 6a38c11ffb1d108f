package client

import (
	"context"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// Stuck says why a group does not go on.
type Stuck struct {
	Queue, Group string
	Reason       string        // "nothing_waits", "in_flight", "no_consumer", …: docs/cli.md lists them
	Text         string        // what the reason means, and what to do about it
	Also         []string      // further reasons, for this message or for those behind it
	Detail       string        // the error behind the reason, if there is one
	Message      *MessageState // the oldest message that is not settled; nil when nothing waits
	Extents      int           // extents with messages that are not settled
}

// MessageState is the state of a message in one group. Unknown fields are zero.
type MessageState struct {
	Group        string // set in MessageInfo.Groups only
	State        string // unread, ready, in_flight, delayed, blocked, dead_lettering; in MessageInfo also settled, dead, before_start, cancelled
	Receipt      core.Receipt
	ID           MessageID
	Enqueued     time.Time
	Age          time.Duration // by the server's clock, whole milliseconds
	Attempts     int           // deliveries so far, the current one included
	LastFailure  string
	LastError    string       // text of the last nack or reject
	Until        time.Time    // the end of its lock or delay
	Holder       *Holder      // the consumer, while the message is in flight
	Owner        string       // the output host that delivers it
	DeadLetter   core.Receipt // its place in the dead letter queue, if it is there
	RetryReceipt core.Receipt // its place in the group's retry queue, if it waits there
	Detail       string       // what is not known of the message, and why
}

// Holder is the consumer that has a message in flight. Unknown fields are zero: those of a connection when the message
// was pulled, and all but Since after another output host took over.
type Holder struct {
	Consumer  string    // the name that it gave itself (WithName)
	Host      string    // the output host that it is connected to
	Session   uint32    // the number of its stream on that host
	Address   string    // its end of the connection; "": it is not connected any more
	Connected time.Time // when it connected
	Since     time.Time // when it got the message
}

// MessageInfo says where a message is stored, its contents, and its state in each group.
type MessageInfo struct {
	Receipt     core.Receipt
	Queue       string
	ExtentState core.ExtentState
	Stored      string         // "committed", "not_committed", "gone" (retention removed it), "unknown" (no store answers)
	Stores      []string       // stores that have it, as far as is known
	Enqueued    time.Time      // zero when the message cannot be read
	Message     *Message       // nil when the message cannot be read
	Detail      string         // why the message cannot be read
	Groups      []MessageState // one of each group of the queue
}

// GetMessage looks a message up by its receipt, and its state in each group; ErrNotFound if there never was one.
func (a *Admin) GetMessage(ctx context.Context, receipt core.Receipt) (MessageInfo, error) {
	p, err := read(ctx, a.c, a.c.admin.GetMessage, &pb.GetMessageRequest{Receipt: receipt.String()})
	if err != nil {
		return MessageInfo{}, err
	}
	out := MessageInfo{
		Receipt: receipt, Queue: p.Queue, ExtentState: core.ExtentState(p.ExtentState), Stored: p.Stored, Stores: p.Stores,
		Enqueued: timeFromProto(p.Enqueued), Detail: p.Detail,
	}
	if p.Message != nil {
		m, err := messageFromProto(p.Message)
		if err != nil {
			return MessageInfo{}, err
		}
		out.Message = &m
	}
	out.Groups, err = all(p.Groups, standingOf)
	return out, err
}

// WhyStuck returns the oldest message that a group has not settled, and the reason why it is not.
func (a *Admin) WhyStuck(ctx context.Context, queue, group string) (Stuck, error) {
	p, err := read(ctx, a.c, a.c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: queue, Group: group})
	if err != nil {
		return Stuck{}, err
	}
	out := Stuck{Queue: p.Queue, Group: p.Group, Reason: p.Reason, Text: p.Text, Also: p.Also, Detail: p.Detail, Extents: int(p.Extents)}
	if p.Message != nil {
		m, err := standingOf(p.Message)
		if err != nil {
			return Stuck{}, err
		}
		out.Message = &m
	}
	return out, nil
}

func standingOf(p *pb.Standing) (MessageState, error) {
	receipt, err := ParseReceipt(p.Receipt)
	if err != nil {
		return MessageState{}, err
	}
	letter, err := ParseReceipt(p.DeadLetter)
	if err != nil {
		return MessageState{}, err
	}
	retry, err := ParseReceipt(p.RetryReceipt)
	if err != nil {
		return MessageState{}, err
	}
	out := MessageState{
		Group: p.Group, DeadLetter: letter, RetryReceipt: retry, State: p.State, Receipt: receipt, Enqueued: timeFromProto(p.Enqueued), Age: time.Duration(p.AgeMs) * time.Millisecond,
		Attempts: int(p.Attempts), LastFailure: p.LastFailure, LastError: p.LastError, Until: timeFromProto(p.Until), Owner: p.Owner, Detail: p.Detail,
	}
	if p.Id != "" {
		id, err := parseID(p.Id)
		if err != nil {
			return MessageState{}, err
		}
		out.ID = MessageID{ID: id}
	}
	if h := p.Holder; h != nil {
		out.Holder = &Holder{
			Consumer: h.Consumer, Host: h.Host, Session: h.Session, Address: h.Address,
			Connected: timeFromProto(h.Connected), Since: timeFromProto(h.Since),
		}
	}
	return out, nil
}
