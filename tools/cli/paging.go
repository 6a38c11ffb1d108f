package cli

import (
	"github.com/spf13/cobra"

	"github.com/columbamq/columba/core"
)

// paging is a part of a long list of messages: how many to print, and after which page token.
type paging struct {
	limit int    // 0: all
	after string // "": from the beginning
}

func (p *paging) register(cmd *cobra.Command, limit int) {
	cmd.Flags().IntVar(&p.limit, "limit", limit, "at most this many; 0 for all")
	cmd.Flags().StringVar(&p.after, "after", "", "go on after the page token that a call with --limit printed")
}

// print prints the part. fetch prints at most that many items (0: as many as a page has) after a token, and returns the
// next token. When the limit ends the part before the list does, print names the token on stderr.
func (p *paging) print(a *app, out *printer, what string, fetch func(after string, most int32) (next string, err error)) error {
	if p.limit < 0 {
		return core.Errorf(core.CodeBadArgument, "limit %d is negative; use 0 for all", p.limit)
	}
	goesOn := ""
	err := a.pages(out, what, func(after string) (string, error) {
		if after == "" {
			after = p.after
		}
		most := 0
		if p.limit > 0 {
			most = min(p.limit-out.items, listPage)
		}
		next, err := fetch(after, int32(most))
		if p.limit > 0 && out.items >= p.limit {
			goesOn, next = next, ""
		}
		return next, err
	})
	if err == nil && goesOn != "" {
		a.say("there may be more: --after %s", goesOn)
	}
	return err
}
