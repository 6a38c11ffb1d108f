package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/columbamq/columba/api/columbav1"
)

// completionTimeout keeps a shell from hanging when the server does not answer.
const completionTimeout = time.Second

// completeQueues offers queue paths for the first argument.
func (a *app) completeQueues(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.timeout = min(a.timeout, completionTimeout)
	page, err := ask(completionContext(cmd), a, a.admin().ListQueues, &pb.ListQueuesRequest{Prefix: prefix, Limit: 200})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, q := range page.GetQueues() {
		out = append(out, q.GetSpec().GetPath())
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeGroups offers a queue path, then a group of it.
func (a *app) completeGroups(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeQueues(cmd, args, prefix)
	}
	a.timeout = min(a.timeout, completionTimeout)
	list, err := ask(completionContext(cmd), a, a.admin().ListGroups, &pb.ListGroupsRequest{Queue: args[0]})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, g := range list.GetGroups() {
		out = append(out, g.GetSpec().GetName())
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeHosts offers the hosts of the cluster.
func (a *app) completeHosts(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.timeout = min(a.timeout, completionTimeout)
	list, err := ask(completionContext(cmd), a, a.admin().ListHosts, &pb.ListHostsRequest{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, h := range list.GetHosts() {
		out = append(out, h.GetHost())
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func completionContext(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// suggest makes the shell offer the values that a flag takes.
func suggest(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is not there, or was given values before
	}
}

// completionOf adds the completion command, which refuses shells it does not know. Call it when root's streams are set.
func completionOf(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args = unknownCommand
			cmd.RunE = needsCommand
			for _, shell := range cmd.Commands() {
				if shell.Name() == "bash" {
					withoutPackage(shell)
				}
			}
		}
	}
}

// bashWords stands in for the one function of the package bash-completion that the script needs, where that package is
// not loaded.
const bashWords = `if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref()
    {
        cur=${COMP_WORDS[COMP_CWORD]}
        prev=${COMP_WORDS[COMP_CWORD-1]}
        words=("${COMP_WORDS[@]}")
        cword=$COMP_CWORD
    }
fi

`

// withoutPackage has the script for bash work without the package bash-completion, too.
func withoutPackage(bash *cobra.Command) {
	script := bash.RunE
	bash.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := io.WriteString(cmd.OutOrStdout(), bashWords); err != nil {
			return err
		}
		return script(cmd, args)
	}
	bash.Long = strings.Replace(bash.Long, "This script depends on the 'bash-completion' package.\nIf it is not installed already, you can install it via your OS's package manager.\n\n", "", 1)
}
