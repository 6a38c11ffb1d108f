package core

import (
	"strings"
)

// Limits of names. A path is 2 to 5 labels, the first of which is the namespace.
const (
	MaxLabel      = 64
	MinPathLabels = 2
	MaxPathLabels = 5
	MaxHostID     = 64
)

// Suffixes of the built-in queues of a group. Labels that end in them are reserved.
const (
	SuffixDLQ   = ".dlq"
	SuffixRetry = ".retry"
)

// ParseQueuePath checks a path that a user gave to name a queue of his own:
// ^(/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}){2,5}$ without reserved labels. It returns the path unchanged, or CodeBadName.
func ParseQueuePath(path string) (string, error) {
	labels, err := splitPath(path)
	if err != nil {
		return "", err
	}
	if len(labels) > MaxPathLabels {
		return "", Errorf(CodeBadName, "queue path %q has %d labels; use %d to %d", clip(path), len(labels), MinPathLabels, MaxPathLabels)
	}
	for _, l := range labels {
		if reserved(l) {
			return "", Errorf(CodeBadName, "label %q is reserved: %s and %s queues belong to consumer groups; they come and go with their group, and `columba purge-dlq PATH GROUP` empties one", clip(l), SuffixDLQ, SuffixRetry)
		}
	}
	return path, nil
}

// ParseAnyQueuePath also accepts the built-in queues of a group, <queue>/<group>.dlq and <queue>/<group>.retry,
// whatever the length of its name.
func ParseAnyQueuePath(path string) (string, error) {
	labels, err := splitPath(path)
	if err != nil {
		return "", err
	}
	last := labels[len(labels)-1]
	of := strings.TrimSuffix(path, "/"+last)
	switch {
	case strings.HasSuffix(last, SuffixRetry):
		if _, _, ok := SplitDLQPath(of); ok { // of a group on a dead letter queue
			_, err = ParseAnyQueuePath(of)
		} else {
			_, err = ParseQueuePath(of)
		}
	case strings.HasSuffix(last, SuffixDLQ):
		_, err = ParseQueuePath(of)
	default:
		return ParseQueuePath(path)
	}
	if err != nil {
		return "", err
	}
	return path, nil
}

// ParseGroupName checks a group name: one label, not reserved.
func ParseGroupName(name string) (string, error) {
	if err := checkLabel("group name", name); err != nil {
		return "", err
	}
	if reserved(name) {
		return "", Errorf(CodeBadName, "group name %q is reserved: names ending in %s or %s are built in", clip(name), SuffixDLQ, SuffixRetry)
	}
	return name, nil
}

// ParseHostID checks a host id: one label.
func ParseHostID(s string) (HostID, error) {
	if err := checkLabel("host id", s); err != nil {
		return "", err
	}
	return HostID(s), nil
}

// DLQPath is the path of a group's dead letter queue.
func DLQPath(queue, group string) string { return queue + "/" + group + SuffixDLQ }

// SplitDLQPath is the reverse of DLQPath; ok is false for any other path.
func SplitDLQPath(path string) (queue, group string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 || !strings.HasSuffix(path, SuffixDLQ) {
		return "", "", false
	}
	return path[:i], strings.TrimSuffix(path[i+1:], SuffixDLQ), true
}

// RetryPath is the path of a group's retry queue.
func RetryPath(queue, group string) string { return queue + "/" + group + SuffixRetry }

// SplitRetryPath is the reverse of RetryPath; ok is false for any other path.
func SplitRetryPath(path string) (queue, group string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 || !strings.HasSuffix(path, SuffixRetry) {
		return "", "", false
	}
	return path[:i], strings.TrimSuffix(path[i+1:], SuffixRetry), true
}

// unsuffixed is the label of the group in that of a built-in queue, other labels as they are.
func unsuffixed(l string) string {
	for _, suffix := range [...]string{SuffixDLQ, SuffixRetry} {
		if name, ok := strings.CutSuffix(l, suffix); ok {
			return name
		}
	}
	return l
}

func splitPath(path string) ([]string, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, Errorf(CodeBadName, "queue path %q does not begin with /; write it like /namespace/name", clip(path))
	}
	const most = MaxPathLabels + 2 // the retry queue of a group on a dead letter queue
	labels := strings.SplitN(path[1:], "/", most+1)
	if len(labels) > most {
		return nil, Errorf(CodeBadName, "queue path %q has more than %d labels; use %d to %d", clip(path), most, MinPathLabels, MaxPathLabels)
	}
	for _, l := range labels {
		if l == "" {
			return nil, Errorf(CodeBadName, "queue path %q has two slashes in a row, or one at its end; write it like /namespace/name", clip(path))
		}
		if err := checkLabel("label of a queue path", unsuffixed(l)); err != nil {
			return nil, err
		}
	}
	if len(labels) < MinPathLabels {
		return nil, Errorf(CodeBadName, "queue path %q has one label; use %d to %d, like /namespace/name", clip(path), MinPathLabels, MaxPathLabels)
	}
	return labels, nil
}

// checkLabel says what is empty; the other texts quote the label.
func checkLabel(what, l string) error {
	switch {
	case l == "":
		return Errorf(CodeBadName, "the %s is empty; use letters, digits, '_', '.', '-'", what)
	case len(l) > MaxLabel:
		return Errorf(CodeBadName, "name %q has %d characters; at most %d are allowed", clip(l), len(l), MaxLabel)
	case !alnum(l[0]):
		return Errorf(CodeBadName, "name %q must begin with an ASCII letter or digit", clip(l))
	}
	for i := 1; i < len(l); i++ {
		if c := l[i]; !alnum(c) && c != '_' && c != '.' && c != '-' {
			return Errorf(CodeBadName, "name %q holds a character other than letters, digits, '_', '.', '-'", clip(l))
		}
	}
	return nil
}

func reserved(l string) bool {
	return strings.HasSuffix(l, SuffixDLQ) || strings.HasSuffix(l, SuffixRetry)
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// clip keeps hostile input from filling a log line.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
