// Package inspect answers questions about the groups and queues of an output host: depth, why a group does not go on,
// the status of a message, listings. It delivers and settles nothing.
package inspect

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// Host is the output host, as far as questions need it. Safe for concurrent use.
type Host interface {
	Self() membership.Host
	Now() time.Time
	Meta() metadata.Store
	// Store is the client of a store.
	Store(address string) columbav1connect.StoreServiceClient
	// Find finds a live store.
	Find(id core.HostID) (membership.Host, bool)
	// Replicas are the live replicas of an open extent, in the order to ask them.
	Replicas(e core.Extent) []membership.Host
	// Holders are the live holders of a sealed extent in the order to ask them, and its other live replicas behind
	// them.
	Holders(e core.Extent, holders []core.HostID) []membership.Host
	// Cancelled reads which messages of an extent were cancelled for all groups.
	Cancelled(ctx context.Context, extent core.ExtentID) (func(core.Seq) bool, error)
	// Seals reads the seal rows of extents. An extent that was never sealed has none.
	Seals(ctx context.Context, keys []metadata.Key) (map[metadata.Key]metadata.SealRecord, error)
	// SaveFailure reports whether the last write of checkpoints failed, and why.
	SaveFailure() (bool, error)

	QueueID(ctx context.Context, path string) (core.QueueID, error)
	// Group finds a group, and loads it when it is not loaded. The caller calls release.
	Group(ctx context.Context, path, name string) (g Group, release func(), err error)
	// Loaded is a loaded group, or nil.
	Loaded(id core.GroupID) Group
	// AllLoaded are all loaded groups.
	AllLoaded() []Group
}

// Group is one consumer group of the host.
type Group interface {
	ID() core.GroupID
	Queue() string // its path
	Name() string
	// Sealed takes over the seal row of a share's extent.
	Sealed(s Share, row metadata.SealRecord)
	// TransferError is why the last transfer to a destination failed; nil: it did not.
	TransferError(to dispatch.Destination) error

	// Lock guards the methods below and those of the group's shares.
	Lock()
	Unlock()
	Rules() *dispatch.Group
	Delay() time.Duration
	// AckRate is how many messages are acked per second.
	AckRate(now time.Time) float64
	// Shares are ordered by chain and age, the oldest extent first. The slice is valid until Unlock.
	Shares() []Share
	Share(extent core.ExtentID) Share // nil: not here
	// Takers are the consumers and pulls that could be handed messages.
	Takers(now time.Time) Takers
	// Holder is the consumer or pull that has a message in flight.
	Holder(st dispatch.Standing) *pb.Holder
	Counted() *CountedGroup
}

// Takers are the consumers and pulls of a group.
type Takers struct {
	All       int
	Credit    int  // of these have credit
	Throttled bool // all with credit are throttled, because they nack much
}

// Share is a group's part of one extent on this host. The group's Lock guards its methods.
type Share interface {
	Extent() core.Extent
	Generation() uint64
	Rules() *dispatch.Share
	Reading() Reading
	// Last is the last committed seq that is known, Reach raises it.
	Last() core.Seq
	Reach(last core.Seq)
	// LastOwed is the last message that is neither settled nor held, as far as known.
	LastOwed() core.Seq
	// Known are the messages of a timer extent that are settled or held, encoded for a store; nil: too many.
	Known() []byte
	// Stores are the live stores of the extent, in the order to ask them.
	Stores(now time.Time) []membership.Host
	// View is what the host sees of the share as a whole.
	View(now time.Time) stuck.View
	// Lister is the controller whose list names the share.
	Lister() core.HostID
	// Trouble is why the extent could not be read last, Failed sets it.
	Trouble() error
	Failed(err error)
	// ClaimError is why what the share claims could not be saved last; nil: it was, or it claims nothing.
	ClaimError() error
	Counted() *CountedShare
}

// Reading is how a share's extent is read.
type Reading struct {
	Open    bool // by a read stream
	Told    bool // its store has told how far the extent may be read
	More    bool // of a timer extent: the store has due messages for which there was no credit
	Failed  bool // the last try to read failed
	Ended   bool // the end of the extent is known
	Retired bool // the extent is retired: nothing more is read
}

// Config of an Inspector.
type Config struct {
	Log         *slog.Logger
	SearchBytes int // how much one call reads in search of one message
}

// Inspector answers questions. Safe for concurrent use.
type Inspector struct {
	cfg   Config
	host  Host
	shown metadata.Store // for answers that change nothing: at Quorum it answers without a majority, too
	mu    struct {
		sync.Mutex        // one look at the counts of all shares at a time; taken before a group's
		position   uint64 // number of the last look
	}
}

// New makes an inspector of a host. It does no I/O.
func New(cfg Config, host Host) *Inspector {
	return &Inspector{cfg: cfg, host: host, shown: metadata.QuorumOrOne(host.Meta())}
}

func timers(s Share) bool { return s.Extent().Kind == core.KindTimer }

func unixMicro(us int64) *timestamppb.Timestamp { return convert.Time(time.UnixMicro(us)) }
