package frontend

import (
	"flag"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
)

// Config of a frontend.
type Config struct {
	// Replicas is how many copies a new queue asks for when its creator does not say; 1 on a single store.
	Replicas int
	// MinReplicas is how many copies a new queue needs at least to open an extent; 1 … Replicas, 0 for 2 or, with one
	// replica, 1.
	MinReplicas int
	// CallTimeout bounds every call but the wait of Pull, and VerifyExtent, which reads whole extents. Callers may ask for
	// less.
	CallTimeout time.Duration
	// DrainTimeout is how long a stopping frontend waits for the calls under way.
	DrainTimeout time.Duration
	// MaxRequest is the largest request in bytes, JSON included. It bounds what one Publish may carry.
	MaxRequest int
	// MaxCalls is how many calls may be under way; further ones are told to wait.
	MaxCalls int
	// MaxPolls is how many pulls may wait for messages beside the calls. One group may have a quarter of them.
	MaxPolls int
	// MaxPublishers is how many queues keep a publisher open between calls of Publish.
	MaxPublishers int
	// PublisherIdle is how long a publisher stays open unused.
	PublisherIdle time.Duration
}

// DefaultConfig is right for a single machine; a cluster sets Replicas.
func DefaultConfig() Config {
	return Config{
		Replicas:      1,
		CallTimeout:   10 * time.Second,
		DrainTimeout:  5 * time.Second,
		MaxRequest:    32 << 20,
		MaxCalls:      4000,
		MaxPolls:      4000,
		MaxPublishers: 1000,
		PublisherIdle: time.Minute,
	}
}

// Register adds a flag per field, named prefix and the field.
func (c *Config) Register(flags *flag.FlagSet, prefix string) {
	flags.IntVar(&c.Replicas, prefix+"replicas", c.Replicas, "copies of each message in queues created without a number of their own")
	flags.IntVar(&c.MinReplicas, prefix+"min-replicas", c.MinReplicas, "copies that must be possible for such a queue to accept messages")
	flags.DurationVar(&c.CallTimeout, prefix+"call-timeout", c.CallTimeout, "longest time for a call, the wait of a pull and the verification of an extent aside")
	flags.DurationVar(&c.DrainTimeout, prefix+"drain-timeout", c.DrainTimeout, "longest wait for calls under way when stopping")
	flags.IntVar(&c.MaxRequest, prefix+"max-request", c.MaxRequest, "largest request in bytes")
	flags.IntVar(&c.MaxCalls, prefix+"max-calls", c.MaxCalls, "calls that may be under way")
	flags.IntVar(&c.MaxPolls, prefix+"max-polls", c.MaxPolls, "pulls that may wait for messages")
	flags.IntVar(&c.MaxPublishers, prefix+"max-publishers", c.MaxPublishers, "queues that keep a publisher open between calls of Publish")
	flags.DurationVar(&c.PublisherIdle, prefix+"publisher-idle", c.PublisherIdle, "how long such a publisher stays open unused")
}

// Validate says which field is wrong and what would be right.
func (c Config) Validate() error {
	switch {
	case c.Replicas < 1 || c.Replicas > core.MaxReplicas:
		return core.Errorf(core.CodeBadArgument, "frontend replicas %d is not in 1 … %d", c.Replicas, core.MaxReplicas)
	case c.MinReplicas < 0 || c.MinReplicas > c.Replicas:
		return core.Errorf(core.CodeBadArgument, "frontend min-replicas %d is not in 0 … replicas (%d)", c.MinReplicas, c.Replicas)
	case c.CallTimeout < 100*time.Millisecond || c.CallTimeout > 10*time.Minute:
		return core.Errorf(core.CodeBadArgument, "frontend call-timeout %s is not in 100ms … 10m", c.CallTimeout)
	case c.DrainTimeout < 0 || c.DrainTimeout > 10*time.Minute:
		return core.Errorf(core.CodeBadArgument, "frontend drain-timeout %s is not in 0 … 10m", c.DrainTimeout)
	case c.MaxRequest < 64<<10 || c.MaxRequest > serving.MaxRequest:
		return core.Errorf(core.CodeBadArgument, "frontend max-request %d is not in 64 KiB … 64 MiB", c.MaxRequest)
	case c.MaxCalls < 1:
		return core.Errorf(core.CodeBadArgument, "frontend max-calls %d is not positive", c.MaxCalls)
	case c.MaxPolls < 1:
		return core.Errorf(core.CodeBadArgument, "frontend max-polls %d is not positive", c.MaxPolls)
	case c.MaxPublishers < 1:
		return core.Errorf(core.CodeBadArgument, "frontend max-publishers %d is not positive", c.MaxPublishers)
	case c.PublisherIdle < time.Second:
		return core.Errorf(core.CodeBadArgument, "frontend publisher-idle %s is below 1s", c.PublisherIdle)
	}
	return nil
}
