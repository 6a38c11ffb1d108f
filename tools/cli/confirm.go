package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// consent is whether a user wants what cannot be undone.
type consent struct{ yes, dryRun bool }

// bind makes the flags; counts is what --dry-run does.
func (c *consent) bind(cmd *cobra.Command, counts string) {
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask; needed in scripts")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, counts)
}

// needed reports whether the user has yet to agree. Where nobody can be asked, a command without --yes is refused.
func (c *consent) needed(a *app) (bool, error) {
	switch {
	case c.yes || c.dryRun:
		return false, nil
	case a.terminal(a.stdin) && a.terminal(a.stderr):
		return true, nil
	}
	return false, core.Errorf(core.CodeBadArgument,
		"this cannot be undone, and no terminal is there to ask for consent; add --yes to do it, or --dry-run to see the effect")
}

// ask has the user agree to what would be gone.
func (c *consent) ask(ctx context.Context, a *app, gone string) error {
	fmt.Fprint(a.stderr, printable(gone+" would be gone for ever. Go on? [y/N] "))
	answer, err := a.answer(ctx)
	if err != nil {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	a.say("nothing was changed")
	return errFailed
}

// askOf is ask of what has a name, and had that id when the question was made. It fails if another one has the name
// when the user has agreed: that one was made while the question stood.
func (c *consent) askOf(ctx context.Context, a *app, gone, id string, now func(context.Context) (string, error)) error {
	if err := c.ask(ctx, a, gone); err != nil {
		return err
	}
	other, err := now(ctx)
	if err == nil && other != id {
		err = core.Errorf(core.CodeConflict, "it was deleted and made anew while the question stood: another one has the name now; nothing was changed")
	}
	return err
}

// queueID is the id of the queue that has a path.
func (a *app) queueID(path string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		q, err := ask(ctx, a, a.admin().GetQueue, &pb.GetQueueRequest{Path: path})
		return q.GetId(), err
	}
}

// groupID is the id of the group of a queue that has a name.
func (a *app) groupID(queue, name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		g, err := ask(ctx, a, a.admin().GetGroup, &pb.GetGroupRequest{Queue: queue, Name: name})
		return g.GetId(), err
	}
}

// answer is a line of stdin, without spaces around it; "" at its end.
func (a *app) answer(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	// The reader is not waited for when it hangs at an interrupt: nothing can end a read of a terminal.
	go func() {
		text, _ := bufio.NewReader(a.stdin).ReadString('\n')
		line <- strings.TrimSpace(text)
	}()
	select {
	case text := <-line:
		return text, nil
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		a.say("nothing was changed")
		return "", context.Canceled
	}
}
