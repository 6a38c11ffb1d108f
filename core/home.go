package core

import "strings"

// HomeKind is the kind of a read scope.
type HomeKind uint8

const (
	HomeOwn     HomeKind = iota // every group of its queue
	HomeMerged                  // one group, which may be another queue's
	HomePurged                  // nobody, for ever
	HomeStaging                 // nobody, until the operation that writes it is decided
)

// Home is the read scope of an extent: the groups that read it. The queue of an extent never changes; its home changes
// by a compare-and-set of its seal row:
//
//	own ──merge──▶ merged(queue/group)      staging(operation) ──decided──▶ merged(queue/group)
//	 └───purge──▶ purged                            └──────── rolled back ──▶ purged
//
// The zero Home is own.
type Home struct {
	Kind      HomeKind
	Queue     QueueID // of the group of HomeMerged
	Group     GroupID // of HomeMerged
	Operation ID      // of HomeStaging
}

// MergedInto returns the home of an extent that only that group reads.
func MergedInto(queue QueueID, group GroupID) Home {
	return Home{Kind: HomeMerged, Queue: queue, Group: group}
}

// ReadBy reports whether a group reads the extent: one of the extent's own queue, or the one that it was merged into.
// The zero GroupID is a reader of the extent's own queue.
func (h Home) ReadBy(group GroupID) bool {
	return h.Kind == HomeOwn || h.Kind == HomeMerged && h.Group == group
}

// Reader is the queue whose groups read an extent of the queue own; ok is false when nobody does.
func (h Home) Reader(own QueueID) (queue QueueID, ok bool) {
	switch h.Kind {
	case HomeOwn:
		return own, true
	case HomeMerged:
		return h.Queue, true
	}
	return QueueID{}, false
}

// String is the form that ParseHome reads: own, merged(queue/group), purged or staging(operation).
func (h Home) String() string {
	switch h.Kind {
	case HomeMerged:
		return "merged(" + h.Queue.String() + "/" + h.Group.String() + ")"
	case HomePurged:
		return "purged"
	case HomeStaging:
		return "staging(" + h.Operation.String() + ")"
	}
	return "own"
}

// ParseHome is the reverse of String; "" is own. CodeBadArgument.
func ParseHome(s string) (Home, error) {
	kind, rest, _ := strings.Cut(s, "(")
	inside, closed := strings.CutSuffix(rest, ")")
	var h Home
	var err error
	switch {
	case s == "" || s == "own":
		return h, nil
	case s == "purged":
		return Home{Kind: HomePurged}, nil
	case kind == "merged" && closed:
		queue, group, _ := strings.Cut(inside, "/")
		h.Kind = HomeMerged
		if h.Queue.ID, err = ParseID(queue); err == nil {
			h.Group.ID, err = ParseID(group)
		}
	case kind == "staging" && closed:
		h.Kind = HomeStaging
		h.Operation, err = ParseID(inside)
	default:
		return Home{}, Errorf(CodeBadArgument, "home %q is not own, merged(queue/group), purged or staging(operation)", clip(s))
	}
	if err != nil {
		return Home{}, Errorf(CodeBadArgument, "home %q: %w", clip(s), err)
	}
	return h, nil
}

// MarshalText is String.
func (h Home) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is ParseHome.
func (h *Home) UnmarshalText(b []byte) error {
	v, err := ParseHome(string(b))
	if err == nil {
		*h = v
	}
	return err
}
