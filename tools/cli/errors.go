package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/columbamq/columba/core"
)

// exitError ends the command with a code; what went wrong was said already.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// errFailed ends the command with exit code 1 after its failures were listed.
var errFailed = exitError{core.ExitFailed}

// finish says what failed in a command and turns it into the exit code.
func (a *app) finish(command string, err error) int {
	if err == nil {
		return core.ExitOK
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	var known *core.Error
	if !errors.As(err, &known) {
		switch {
		case a.ofOutput(err):
			err = core.Errorf(core.CodeInternal, "what the command has to say cannot be written: %w; free space where it goes, or send it elsewhere", err)
		case !a.ran:
			err = core.Errorf(core.CodeBadArgument, "%s; see `columba --help`", firstLine(err.Error()))
		case errors.Is(err, context.Canceled):
			a.say("interrupted")
			return core.ExitFailed
		case errors.Is(err, context.DeadlineExceeded):
			err = core.Errorf(core.CodeDeadline, "%w", err)
		}
	}
	if what, todo := splitHint(err.Error()); todo == "" && core.CodeOf(err) == core.CodeBadArgument {
		err = core.Errorf(core.CodeBadArgument, "%s; see `%s --help`", what, command)
	}
	a.complain("", err)
	return core.CodeOf(err).Exit()
}

// ofOutput reports whether stdout could not be written.
func (a *app) ofOutput(err error) bool {
	var failed *fs.PathError
	file, ok := a.stdout.(*os.File)
	return ok && errors.As(err, &failed) && failed.Op == "write" && failed.Path == file.Name()
}

// complain prints one error line: "error: what (code) – what to do"; subject, when there is one, says of what.
func (a *app) complain(subject string, err error) {
	fmt.Fprintln(a.stderr, errorLine(subject, err))
}

func errorLine(subject string, err error) string {
	code := core.CodeOf(err)
	what, todo := splitHint(err.Error())
	var away unreachableError
	switch {
	case todo != "":
	case errors.As(err, &away):
		todo = "is the server running? Start one with `columba serve`, or name another with --addr"
	default:
		todo = hint(code, what)
	}
	line := fmt.Sprintf("%s (%s)", what, code)
	if subject != "" {
		line = subject + ": " + line
	}
	if todo != "" {
		line += " – " + todo
	}
	return "error: " + printable(line)
}

// splitHint cuts "what; what to do" at the last semicolon that stands outside quotes.
func splitHint(text string) (what, todo string) {
	i := strings.LastIndex(text, "; ")
	if i < 0 || strings.Count(text[:i], `"`)%2 == 1 {
		return text, ""
	}
	return text[:i], text[i+2:]
}

// hint says what to do about an error whose text does not.
func hint(code core.Code, what string) string {
	if code == core.CodeUnavailable && ofMetadata(what) {
		return metadataHint
	}
	if code != core.CodeNotFound {
		return hints[code]
	}
	for _, word := range strings.Fields(what) { // the first noun is what was not found
		if todo := finders[word]; todo != "" {
			return inQueue(todo, what)
		}
	}
	return hints[code]
}

// inQueue puts the queue that an error names into the command that helps, so that it can be pasted.
func inQueue(todo, what string) string {
	_, after, _ := strings.Cut(what, "queue /")
	path, _, _ := strings.Cut("/"+after, " ")
	if _, err := core.ParseAnyQueuePath(path); err != nil {
		return todo
	}
	return strings.ReplaceAll(todo, "PATH", path)
}

// metadataHint is for errors of Cassandra, whose nodes are no hosts of the cluster.
const metadataHint = "start the Cassandra nodes that are down, or ask where most of them are: `columba schema show` with the URL of --metadata lists them"

// ofMetadata reports whether the text of an error says that the metadata do not answer.
func ofMetadata(what string) bool {
	for _, part := range []string{"Cassandra", "cassandra", "majority of the metadata", "copy of the metadata"} {
		if strings.Contains(what, part) {
			return true
		}
	}
	return false
}

// finders say how to find a thing of a kind.
var finders = map[string]string{
	"queue":     "see `columba list queues`",
	"group":     "see `columba list groups PATH`",
	"extent":    "see `columba list extents PATH`",
	"message":   "see `columba peek PATH` and `columba dlq list PATH GROUP`",
	"host":      "see `columba list hosts`",
	"operation": "see `columba list operations --all`",
}

// hints are for errors of a code, whatever they are about.
var hints = map[core.Code]string{
	core.CodeBadArgument:   "see the command's --help",
	core.CodeBadName:       "a queue is /namespace/name, a group is one name",
	core.CodeBadID:         "copy the id as the command that showed it printed it",
	core.CodeBadToken:      "use a delivery token printed by `columba consume --ack tokens` of this cluster",
	core.CodeTooLarge:      "send less",
	core.CodeVersion:       "use the same version of columba on both sides",
	core.CodeNotFound:      "name one that exists",
	core.CodeExists:        "choose another name, or change the existing one with `columba update`",
	core.CodeConflict:      "look at the current state with `columba show` and try again",
	core.CodeStale:         "a message that is not settled comes again; use the token of that delivery",
	core.CodeMoved:         "try again",
	core.CodeDisabled:      "enable it with `columba update … --status enabled`",
	core.CodeThrottled:     "try again later, or slower",
	core.CodeNoMajority:    metadataHint,
	core.CodeUnavailable:   "try again in a few seconds; `columba list hosts` shows which hosts are there",
	core.CodeDeadline:      "it may or may not have been done: look before you try again, or allow more with --timeout",
	core.CodeDraining:      "try again in a few seconds",
	core.CodeIncomplete:    "try again when more store hosts are up",
	core.CodeUnknown:       "it may or may not have been done: look before you try again",
	core.CodeCorrupt:       "see the server's log and `columba inspect extent`",
	core.CodeLocked:        "stop the other server, or use another --data directory",
	core.CodeNewerFormat:   "use the version of columba that wrote it, or a later one",
	core.CodeReadOnly:      "make the directory writable",
	core.CodeNoSpace:       "free disk space on the store hosts",
	core.CodeInternal:      "see the server's log",
	core.CodeUnimplemented: "this version of the server cannot do it; leave the option out, or use a later server",
	core.CodeUnsupported:   "leave the option out",
}

// say talks to the user on stderr.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.stderr, printable(fmt.Sprintf(format, args...)))
}
