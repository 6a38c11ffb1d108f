package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
)

func (a *app) listAuditCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use: "audit [PREFIX]", Short: "List the changes that the audit has recorded",
		Long: "List recorded changes, oldest first: time, user, object and result of each. PREFIX selects the objects whose path or id begins with it.\n" +
			"An entry is kept for 30 days.",
		Example: "  columba list audit --since 24h\n  columba list audit /demo/trips -o json",
		Args:    between(0, 1), ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			at, err := since("since", from, time.Now())
			if err != nil {
				return err
			}
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			out, admin := a.fitted("WHO", "RESULT", "OBJECT"), a.admin()
			return a.pages(out, "audited changes", func(after string) (string, error) {
				page, err := ask(ctx, a, admin.ListAudit, &pb.ListAuditRequest{Prefix: prefix, Since: convert.Time(at), After: after})
				for _, e := range page.GetEntries() {
					out.item(auditFields(e))
				}
				return page.GetNext(), err
			})
		}),
	}
	cmd.Flags().StringVar(&from, "since", "", "only changes since a time like 2026-01-02T15:04:05Z, or for so long, like 24h")
	return cmd
}

func auditFields(e *pb.AuditEntry) []field {
	return []field{
		{name: "when", value: instant(e.GetWhen())},
		{name: "result", value: e.GetResult()},
		{name: "object", value: e.GetObject()},
		{name: "what", value: e.GetWhat()},
		{name: "who", value: e.GetWho()},
	}
}
