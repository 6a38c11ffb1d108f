package publish

import (
	"context"
	"log/slog"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// Host is an input host of the queue.
type Host struct {
	ID      core.HostID
	Address string
}

// Config of a Publisher. Queue, Route and Dial are required; zero fields take the defaults.
type Config struct {
	Queue    string       // path
	Client   string       // name for the hosts' logs
	Internal bool         // may append to built-in queues; for hosts only
	Owner    core.GroupID // whose built-in queue it is: another group's, under the same path, is not found; zero: whoever's

	// Route looks up the input hosts of the queue. A fatal error (core.ClassFatal) fails what waits; others are tried
	// again.
	Route func(ctx context.Context) ([]Host, error)
	// Dial is the connection to a host, shared or new. The publisher opens a stream on it and ends it only when the host
	// is silent: then it is of no use to anybody.
	Dial func(ctx context.Context, h Host) (*ws.Mux, error)

	// Told is called after owners were told outcomes, once for all that were at hand, where they were: an owner with
	// something to do for many at a time does it here. Nil: none has.
	Told func()

	// Once: a record that a try may have stored is not sent again. Its owner is told core.CodeUnknown at once, and finds
	// out itself. And the deadline of the context that a record was appended with is that of the record, too: after it
	// nothing is sent.
	Once bool

	Timeout    time.Duration // how long a record is tried; default 30 s
	MaxRecords int           // taken and without an outcome; default 65,536
	MaxBytes   int           // the same in encoded bytes; default 32 MiB. One record may go over.
	Log        *slog.Logger  // default: discards
}

const (
	defaultTimeout    = 30 * time.Second
	defaultMaxRecords = 64 << 10
	defaultMaxBytes   = 32 << 20

	batchTarget = wire.BatchTarget // a batch is full above it
	// maxGathering is how many batches may be in flight before one that is not full waits: what comes meanwhile joins it.
	maxGathering = 4
	// gatherMost is how long it waits at most: a few batches that a host does not answer, since their extent cannot be
	// sealed, must not hold up what it could store elsewhere.
	gatherMost     = 500 * time.Millisecond
	defaultWindow  = 4 << 20 // bytes in flight, when the host names none
	connectTimeout = 10 * time.Second
	answerTimeout  = 10 * time.Second       // then a host that holds a batch counts as lost, although it lives
	pingAfter      = 500 * time.Millisecond // without a sign of life from a host that holds a batch
	silentTimeout  = 3 * time.Second        // then it counts as lost
	// maxThrottle bounds the pause that a host may ask for: the publisher pauses for all its hosts. Input hosts ask for
	// ten seconds at most.
	maxThrottle = 30 * time.Second
	tick        = 250 * time.Millisecond // of the look for hosts that do not answer
	clockShares = 16                     // records for each reading of the clock
	// greetTimeout is how long one host has to connect and to greet before the next is tried. It doubles with each round
	// that failed.
	greetTimeout    = time.Second
	maxGreetTimeout = 4 * time.Second
)

// retry spaces attempts to connect, and to send again what was refused.
var retry = core.Backoff{Min: 20 * time.Millisecond, Factor: 2, Max: 2 * time.Second, Jitter: 0.3}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxRecords <= 0 {
		c.MaxRecords = defaultMaxRecords
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.Told == nil {
		c.Told = func() {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
