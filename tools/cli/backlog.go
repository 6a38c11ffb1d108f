package cli

import (
	"context"
	"strings"

	pb "github.com/columbamq/columba/api/columbav1"
)

// wouldLose says what a command would do, and prints what the groups concerned have before them. Without a group these
// are all of the queue. title stands above that, unless there are no groups.
func (a *app) wouldLose(ctx context.Context, queue, group, what, title string) error {
	res, err := ask(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group})
	if err != nil {
		return err
	}
	if len(res.GetGroups()) > 0 {
		what += ". " + title
	}
	return a.printBacklogs(res.GetGroups(), what)
}

// printBacklogs prints what groups have before them, below a title on stderr.
func (a *app) printBacklogs(groups []*pb.Depth, title string) error {
	a.say("%s", title)
	out := a.printer()
	for _, d := range groups {
		out.item(depthFields(d))
		a.sayUnknown(d)
	}
	return out.close()
}

// namedBacklogs is how many groups a question names.
const namedBacklogs = 3

// backlogText is what the groups concerned have before them, for a question: " (billing: 105 messages, 3 dead
// letters)". It is empty while that cannot be counted: the question is asked all the same.
func (a *app) backlogText(ctx context.Context, queue, group string) string {
	res, err := once(ctx, a, a.admin().GetDepth, &pb.GetDepthRequest{Queue: queue, Group: group})
	if err != nil {
		return ""
	}
	return groupsText(res.GetGroups(), func(d *pb.Depth) string {
		return messagesText(d) + ", " + deadText(d)
	})
}

// messagesOf counts the messages of each group: " (billing: 105 messages)".
func messagesOf(groups []*pb.Depth) string { return groupsText(groups, messagesText) }

func messagesText(d *pb.Depth) string {
	return atLeast(d) + plural(int64(d.GetReady()+d.GetInFlight()+d.GetDelayed()+d.GetBlocked()), "message")
}

func deadText(d *pb.Depth) string { return atLeast(d) + plural(int64(d.GetDead()), "dead letter") }

// atLeast stands before a number of a depth: extents that could not be counted may have more.
func atLeast(d *pb.Depth) string {
	if d.GetUnknownExtents() > 0 {
		return "at least "
	}
	return ""
}

// sayUnknown says that a depth has not counted all extents.
func (a *app) sayUnknown(d *pb.Depth) {
	if n := d.GetUnknownExtents(); n > 0 {
		a.say("group %s: %s could not be counted just now; there may be more", d.GetGroup(), plural(int64(n), "extent"))
	}
}

// theGroup is the depth of the one group that was asked for.
func theGroup(res *pb.GetDepthResponse) *pb.Depth {
	if g := res.GetGroups(); len(g) > 0 {
		return g[0]
	}
	return &pb.Depth{}
}

// groupsText names the first groups with what each of them has; "" without groups.
func groupsText(groups []*pb.Depth, has func(*pb.Depth) string) string {
	if len(groups) == 0 {
		return ""
	}
	var parts []string
	for _, d := range groups[:min(len(groups), namedBacklogs)] {
		parts = append(parts, d.GetGroup()+": "+has(d))
	}
	if more := len(groups) - len(parts); more > 0 {
		parts = append(parts, plural(more, "other group"))
	}
	return " (" + strings.Join(parts, "; ") + ")"
}
