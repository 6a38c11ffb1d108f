package core

import "time"

// Consistency says whether a queue gives up order or availability when the network is cut.
type Consistency string

const (
	// AP queues accept publishes on either side of a cut; no order across extents.
	AP Consistency = "ap"
	// CP queues keep each publisher's order over one chain of extents; the minority side refuses.
	CP Consistency = "cp"
)

// Durability is the meaning of an acknowledged publish.
type Durability string

const (
	// DurabilityFsync: on stable storage of every replica of the open extent.
	DurabilityFsync Durability = "fsync"
	// DurabilityWritten: in the page cache of every replica; a power cut may lose it.
	DurabilityWritten Durability = "written"
)

// QueueSpec has the settings of a queue. Zero fields mean the cluster's defaults.
type QueueSpec struct {
	Path                string        `json:"path"`
	Consistency         Consistency   `json:"consistency"`
	Durability          Durability    `json:"durability"`
	Replicas            int           `json:"replicas"`
	MinReplicas         int           `json:"min_replicas"`
	ConsumedRetention   time.Duration `json:"consumed_retention"`
	UnconsumedRetention time.Duration `json:"unconsumed_retention"`
	MaxMessage          int           `json:"max_message"` // bytes of payload
	Status              Status        `json:"status"`
	MaxBacklog          int64         `json:"max_backlog,omitzero"` // bytes that the group furthest behind may leave unconsumed; 0: no limit
}

// SameCopies reports whether another queue keeps messages in as many copies, and as durably.
func (q QueueSpec) SameCopies(o QueueSpec) bool {
	return q.Durability == o.Durability && q.Replicas == o.Replicas && q.MinReplicas == o.MinReplicas
}

// WithCopies is q with as many copies, and as durable, as another queue.
func (q QueueSpec) WithCopies(of QueueSpec) QueueSpec {
	q.Durability, q.Replicas, q.MinReplicas = of.Durability, of.Replicas, of.MinReplicas
	return q
}

// Limits of a queue's settings.
const (
	DefaultMaxMessage = 1 << 20
	MaxMaxMessage     = 16 << 20
	MaxReplicas       = 7
	MaxRetention      = 10 * 365 * 24 * time.Hour
)

// WithDefaults fills the settings that are not set; replicas and minReplicas are the cluster's. A spec with a number of
// replicas above one and without a minimum gets a minimum of two.
func (q QueueSpec) WithDefaults(replicas, minReplicas int) QueueSpec {
	if q.Replicas > 0 {
		minReplicas = 2
	}
	def(&q.Consistency, AP)
	def(&q.Durability, DurabilityFsync)
	def(&q.Replicas, replicas)
	def(&q.MinReplicas, min(minReplicas, q.Replicas))
	def(&q.ConsumedRetention, 24*time.Hour)
	def(&q.UnconsumedRetention, 72*time.Hour)
	def(&q.MaxMessage, DefaultMaxMessage)
	def(&q.Status, StatusEnabled)
	return q
}

// Validate checks a spec that has its defaults. The path is checked by ParseQueuePath.
func (q QueueSpec) Validate() error {
	switch {
	case q.Consistency != AP && q.Consistency != CP:
		return Errorf(CodeBadArgument, "consistency %q is not ap or cp", clip(string(q.Consistency)))
	case q.Durability != DurabilityFsync && q.Durability != DurabilityWritten:
		return Errorf(CodeBadArgument, "durability %q is not fsync or written", clip(string(q.Durability)))
	case q.Replicas < 1 || q.Replicas > MaxReplicas:
		return Errorf(CodeBadArgument, "replicas %d is not in 1 … %d", q.Replicas, MaxReplicas)
	case q.MinReplicas < 1 || q.MinReplicas > q.Replicas:
		return Errorf(CodeBadArgument, "min-replicas %d is not in 1 … replicas (%d)", q.MinReplicas, q.Replicas)
	case q.ConsumedRetention < 0 || q.ConsumedRetention > MaxRetention:
		return Errorf(CodeBadArgument, "consumed-retention %s is not in 0 … %s", FormatDuration(q.ConsumedRetention), FormatDuration(MaxRetention))
	case q.UnconsumedRetention < 0 || q.UnconsumedRetention > MaxRetention:
		return Errorf(CodeBadArgument, "unconsumed-retention %s is not in 0 … %s", FormatDuration(q.UnconsumedRetention), FormatDuration(MaxRetention))
	case q.MaxMessage < 1 || q.MaxMessage > MaxMaxMessage:
		return Errorf(CodeBadArgument, "max-message %d is not in 1 … %d bytes", q.MaxMessage, MaxMaxMessage)
	case q.MaxBacklog < 0:
		return Errorf(CodeBadArgument, "max-backlog %d is below 0; 0 is no limit", q.MaxBacklog)
	}
	return checkStatus(q.Status)
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
