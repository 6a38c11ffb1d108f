package core

// Status says whether a queue accepts publishes, and whether a queue or group delivers.
type Status string

const (
	StatusEnabled     Status = "enabled"
	StatusDisabled    Status = "disabled"
	StatusSendOnly    Status = "send-only"
	StatusReceiveOnly Status = "receive-only"
	// StatusDeleted marks a record whose name is free again.
	StatusDeleted Status = "deleted"
)

// CanPublish and CanConsume read the status.
func (s Status) CanPublish() bool { return s == StatusEnabled || s == StatusSendOnly }
func (s Status) CanConsume() bool { return s == StatusEnabled || s == StatusReceiveOnly }

// PublishError is the error for a publisher to a queue of that status; nil: it may publish.
func (s Status) PublishError(queue string) error {
	switch {
	case s.CanPublish():
		return nil
	case s == StatusDeleted:
		return Errorf(CodeNotFound, "queue %s was deleted; create it again with: columba create queue %s", queue, queue)
	}
	return Errorf(CodeDisabled, "queue %s is %s: it takes no messages; let it take them with: columba update queue %s --status enabled", queue, s, queue)
}

// ConsumeError is the error for a consumer of a group whose queue has that status; nil: it may consume.
func (s Status) ConsumeError(queue string) error {
	switch {
	case s.CanConsume():
		return nil
	case s == StatusDeleted:
		return Errorf(CodeNotFound, "queue %s was deleted; create it again with: columba create queue %s", queue, queue)
	}
	return Errorf(CodeDisabled, "queue %s is %s: nothing is delivered from it; go on with: columba update queue %s --status enabled", queue, s, queue)
}

// GroupError is the error for a consumer whose group has that status; nil: it may consume.
func (s Status) GroupError(queue, group string) error {
	switch {
	case s.CanConsume():
		return nil
	case s == StatusDeleted:
		return Errorf(CodeNotFound, "group %s of queue %s was deleted: nothing is delivered to it any more", group, queue)
	}
	return Errorf(CodeDisabled, "group %s of queue %s is %s: nothing is delivered to it; go on with: columba update group %s %s --status enabled", group, queue, s, queue, group)
}

func checkStatus(s Status) error {
	switch s {
	case StatusEnabled, StatusDisabled, StatusSendOnly, StatusReceiveOnly:
		return nil
	}
	return Errorf(CodeBadArgument, "status %q is not enabled, disabled, send-only or receive-only", clip(string(s)))
}
