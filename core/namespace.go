package core

import "strings"

// NamespaceSpec has the limits of a namespace, for all its queues together. Zero means no limit.
type NamespaceSpec struct {
	Name              string `json:"name"`
	MaxQueues         int64  `json:"max_queues,omitzero"`          // queues of users
	MessagesPerSecond int64  `json:"messages_per_second,omitzero"` // published
	BytesPerSecond    int64  `json:"bytes_per_second,omitzero"`    // published, as they are encoded
	BacklogBytes      int64  `json:"backlog_bytes,omitzero"`       // that the group furthest behind of each queue has not consumed, of all queues
}

// Validate checks the limits. The name is checked by ParseNamespace.
func (n NamespaceSpec) Validate() error {
	for _, l := range []struct {
		name  string
		value int64
	}{
		{"max-queues", n.MaxQueues}, {"messages-per-second", n.MessagesPerSecond}, {"bytes-per-second", n.BytesPerSecond}, {"backlog-bytes", n.BacklogBytes},
	} {
		if l.value < 0 {
			return Errorf(CodeBadArgument, "%s %d is below 0; 0 is no limit", l.name, l.value)
		}
	}
	return nil
}

// ParseNamespace checks the name of a namespace, which is a slash and the label that its queues' paths begin with.
func ParseNamespace(name string) (string, error) {
	label, ok := strings.CutPrefix(name, "/")
	if !ok || strings.Contains(label, "/") {
		return "", Errorf(CodeBadName, "namespace %q is not a slash and one label; write it like /acme", clip(name))
	}
	if err := checkLabel("label of the namespace", label); err != nil {
		return "", err
	}
	if reserved(label) {
		return "", Errorf(CodeBadName, "label %q is reserved: %s and %s queues belong to consumer groups; they come and go with their group, and `columba purge-dlq PATH GROUP` empties one", clip(label), SuffixDLQ, SuffixRetry)
	}
	return name, nil
}

// Namespace is the name of the namespace that a path belongs to.
func Namespace(path string) string {
	rest := strings.TrimPrefix(path, "/")
	label, _, _ := strings.Cut(rest, "/")
	return "/" + label
}
