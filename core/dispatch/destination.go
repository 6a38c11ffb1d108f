package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// Destination is the built-in queue that a message is transferred to. Checkpoints keep the numbers.
type Destination uint8

const (
	DeadLetterQueue Destination = 0 // what nobody is to be handed again
	RetryQueue      Destination = 1 // what waits for long before its next attempt
	// Destinations is how many there are.
	Destinations = 2
)

// String names the queue in messages to people.
func (d Destination) String() string {
	if d == RetryQueue {
		return "retry queue"
	}
	return "dead letter queue"
}

// Reason says why a message is transferred. Checkpoints keep the numbers. Users read the Failure of a dead letter.
type Reason uint8

const (
	Failed    Reason = 0 // an attempt failed: it is rejected, or it waits for its next attempt
	Exhausted Reason = 1 // it had its last attempt
	Expired   Reason = 2 // it was delivered, and expired before it was delivered again
	Swept     Reason = 3 // it was never delivered, and attempts are 0
	reasons          = 4
)

// route is what differs between the destinations.
type route struct {
	// atOnce is how many messages of a share are between the first step and the last. So many fit into every
	// checkpoint.
	atOnce int
	// doubt is for how long a message is held before it is looked for, after an append whose outcome is not known and
	// at a new owner.
	doubt time.Duration
	// patience is for how long a message stays leaving while nothing has succeeded since it failed: when the breaker
	// opens meanwhile, the attempt does not count. One for the retry queue stays only while others failed, too, and
	// what is appended says that the attempt does not count; a dead letter stays only if it is exhausted.
	patience time.Duration
	// returns: while the message is here only, it is handed out from here when its time comes.
	returns bool
	// expires: what expires before it is appended does not go there.
	expires bool
	// recalled: a breaker that opens takes the message back while it is here only.
	recalled bool
}

var routes = [Destinations]route{
	DeadLetterQueue: {atOnce: transfersAtOnce, doubt: TransferDoubt, patience: 5 * time.Second, recalled: true},
	RetryQueue:      {atOnce: transfersAtOnce, patience: 2 * time.Second, returns: true, expires: true},
}

const (
	transfersAtOnce = 2048
	// TransferDoubt is for how long an append to the dead letter queue whose outcome is not known can still come to
	// pass. A message is looked for there after it only: a look before that may miss it, and the append that follows
	// would be the second one. See adr/0040 for what it is made of. The retry queue needs no such wait: whoever reads
	// it drops the second of two.
	TransferDoubt = time.Minute
)

// wanted reports whether a group with this spec has such a message go there. One that a group does not want any more is
// judged again.
func (x *transfer) wanted(spec *core.GroupSpec) bool {
	return x.to != DeadLetterQueue || spec.Exhausted == core.ExhaustedDLQ || x.reason.expired() && spec.Expired == core.ExpiredDLQ
}

func (r Reason) expired() bool { return r == Expired || r == Swept }
