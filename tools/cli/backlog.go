package cli

import (
	"context"
	"fmt"
	"strings"

	pb "github.com/columbamq/columba/api/columbav1"
)

// wouldLose says what a command would do, and prints what the groups concerned have before them. Without a group these are all of the queue.
// title stands above that, unless there are no groups.
func (a *app) wouldLose(ctx context.Context, queue, group, what, title string) error {
	res, err := ask(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group})
	if err != nil {
		return err
	}
	if len(res.GetGroups()) > 0 {
		what += ". " + title
	}
	a.say("%s", what)
	out := a.printer()
	for _, d := range res.GetGroups() {
		out.item(depthFields(d))
	}
	return out.close()
}

// namedBacklogs is how many groups a question names.
const namedBacklogs = 3

// backlogText is what the groups concerned have before them, for a question: " (billing: 105 messages, 3 dead letters)". It is empty while that cannot
// be counted: the question is asked all the same.
func (a *app) backlogText(ctx context.Context, queue, group string) string {
	res, err := once(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group})
	if err != nil || len(res.GetGroups()) == 0 {
		return ""
	}
	var parts []string
	for _, d := range res.GetGroups()[:min(len(res.GetGroups()), namedBacklogs)] {
		left := d.GetReady() + d.GetInFlight() + d.GetDelayed() + d.GetBlocked()
		parts = append(parts, fmt.Sprintf("%s: %s, %s", d.GetGroup(), plural(int64(left), "message"), plural(int64(d.GetDead()), "dead letter")))
	}
	if more := len(res.GetGroups()) - len(parts); more > 0 {
		parts = append(parts, plural(more, "other group"))
	}
	return " (" + strings.Join(parts, "; ") + ")"
}
