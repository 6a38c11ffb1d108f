package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// selectionFlags say which dead letters are meant.
type selectionFlags struct {
	ids, reasons             []string
	older, newer             string
	minAttempts, maxAttempts uint32
	flags                    *pflag.FlagSet
}

func (s *selectionFlags) bind(f *pflag.FlagSet) {
	s.flags = f
	f.StringSliceVar(&s.ids, "id", nil, "only messages with these ids")
	f.StringArrayVar(&s.reasons, "reason", nil, "only dead letters with this reason, or with this text in their error; repeat it for another one")
	f.StringVar(&s.older, "older-than", "", "only those that have been dead letters for longer, like 72h, or since before a time")
	f.StringVar(&s.newer, "newer-than", "", "only those that have been dead letters for less, like 2h, or since a time")
	f.Uint32Var(&s.minAttempts, "min-attempts", 0, "only those with at least so many attempts")
	f.Uint32Var(&s.maxAttempts, "max-attempts", 0, "only those with at most so many attempts, 1 or more")
}

// selection is what the flags say; nil: all.
func (s *selectionFlags) selection(now time.Time) (*pb.DeadLetterSelection, error) {
	if s.maxAttempts == 0 && s.flags.Changed("max-attempts") { // a selection has 0 for no limit
		return nil, core.Errorf(core.CodeBadArgument, "--max-attempts takes 1 or more; `--reason expired` selects messages that expired, also before their first attempt")
	}
	out := core.Selection{Reasons: s.reasons, MinAttempts: int(s.minAttempts), MaxAttempts: int(s.maxAttempts)}
	for _, text := range s.ids {
		id, err := core.ParseID(text)
		if err != nil {
			return nil, err
		}
		out.IDs = append(out.IDs, core.MessageID{ID: id})
	}
	var err error
	if out.DeadBefore, err = since("older-than", s.older, now); err != nil {
		return nil, err
	}
	if out.DeadAfter, err = since("newer-than", s.newer, now); err != nil {
		return nil, err
	}
	return convert.SelectionToProto(out), out.Validate()
}

// since reads a time, or a duration back from now; "" is none.
func since(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := core.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := core.ParseTime(text)
	if err != nil {
		return at, core.Errorf(core.CodeBadArgument, "--%s %q is neither a duration like 72h or 7d nor a time like 2026-01-02T15:04:05Z or 2026-01-02", flag, clip(text))
	}
	return at, nil
}

// countSelected says what an operation would take, and changes nothing.
func (a *app) countSelected(ctx context.Context, kind, queue, group string, s core.Selection) error {
	var all, found uint64
	for after := ""; ; {
		page, err := ask(ctx, a, a.admin().ListDeadLetters, &pb.ListDeadLettersRequest{Queue: queue, Group: group, After: after})
		if err != nil {
			return err
		}
		for _, d := range page.GetDeadLetters() {
			id, err := core.ParseID(d.GetId())
			if err != nil {
				id = core.ID{} // it was published without one
			}
			all++
			if s.Matches(core.Letter{
				ID: core.MessageID{ID: id}, Since: d.GetDeadSince().AsTime().UnixMicro(), Attempts: int(d.GetAttempts()), Reason: []byte(d.GetReason()), Error: []byte(d.GetError()),
			}) {
				found++
			}
		}
		if after = page.GetNext(); after == "" {
			break
		}
	}
	a.say("would %s %d of %d dead letters of group %s of %s; nothing was changed", kind, found, all, group, queue)
	return a.printDryRun(kind, queue, group, found, all)
}

// printDryRun prints the numbers of a dry run for scripts; people have read them in a sentence.
func (a *app) printDryRun(kind, queue, group string, found, all uint64) error {
	if a.format == formatTable {
		return nil
	}
	return a.printer().object([]field{
		{name: "kind", value: kind}, {name: "queue", value: queue}, {name: "group", value: group}, {name: "selected", value: found}, {name: "dead", value: all},
	})
}

// selectionText is a selection in words.
func selectionText(p *pb.DeadLetterSelection) string {
	s := convert.Selection(p)
	var out []string
	add := func(set bool, format string, args ...any) {
		if set {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(len(s.IDs) == 1, "id %s", strings.Join(p.GetIds(), " "))
	add(len(s.IDs) > 1, "%d ids", len(s.IDs))
	add(!s.DeadBefore.IsZero(), "dead before %s", s.DeadBefore.UTC().Format(time.RFC3339))
	add(!s.DeadAfter.IsZero(), "dead since %s", s.DeadAfter.UTC().Format(time.RFC3339))
	add(len(s.Reasons) > 0, "reason %q", s.Reasons)
	add(s.MinAttempts > 0, "attempts ≥ %d", s.MinAttempts)
	add(s.MaxAttempts > 0, "attempts ≤ %d", s.MaxAttempts)
	return strings.Join(out, ", ")
}
