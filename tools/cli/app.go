package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/columbamq/columba/core"
)

// DefaultAddr is where commands look for a server when neither --addr nor COLUMBA_ADDR says otherwise.
const DefaultAddr = "127.0.0.1:4922"

// app is one invocation of the command line.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string

	addr    string
	server  atomic.Int32 // which of the addresses in addr unary calls go to
	format  string
	timeout time.Duration // of one request
	// patience is for how long a question is asked again that a server cannot answer just now.
	patience time.Duration
	// startTime is how long a server is waited for where connections are refused.
	startTime time.Duration

	netDial       Dial           // nil: the network
	terminal      func(any) bool // whether it is one that a question can be asked at
	width         func(any) int  // of a terminal, in columns; 0: it is none
	fakePublisher publisher      // tests only: instead of the client's
	schemas       schemas        // of metadata in Cassandra

	hinted bool // it was said that a table leaves out columns

	ran bool // a command of ours was reached: what fails before is usage
}

// Main runs the command line args (without the program's name) and returns the process's exit code: one of core.Exit….
// env is in the form of os.Environ. When ctx ends, the command stops, says what it did so far and returns.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	return MainVia(ctx, nil, args, stdin, stdout, stderr, env)
}

// Dial connects to the address of a server.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// MainVia is Main over connections that dial makes, for clusters that are on another network than the machine's.
func MainVia(ctx context.Context, dial Dial, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env, netDial: dial, terminal: isTerminal, patience: retryTime, startTime: startTime, width: columns, schemas: inCassandra}
	return a.main(ctx, args)
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // never nil, which would mean os.Args
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	completionOf(root)
	cmd, err := root.ExecuteContextC(ctx)
	return a.finish(cmd.CommandPath(), err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "columba",
		Short: "A durable, replicated task queue: server, client and tools in one binary", Version: buildVersion(),
		Long: "Columba is a durable, replicated task queue. Publishers put messages into a queue; every consumer group of the\n" +
			"queue gets all of them; inside a group consumers share the work.\n\n" +
			"Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 unavailable or timeout.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(badFlag)
	addr := DefaultAddr
	if v, _ := a.lookupEnv("COLUMBA_ADDR"); v != "" {
		addr = v
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.addr, "addr", addr, "address of a server with the role frontend, or several with commas between (env COLUMBA_ADDR)")
	flags.StringVarP(&a.format, "output", "o", formatTable, "output format: table, json (one object per line) or yaml")
	suggest(root, "output", formatTable, formatJSON, formatYAML)
	durationVar(flags, &a.timeout, "timeout", 30*time.Second, "give up on a request, or on the publish of a message, after this long")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.checkFlags(cmd) }
	root.SetHelpCommand(a.helpCommand(root))
	root.SetVersionTemplate("columba {{.Version}}\n")
	root.AddCommand(
		a.serveCommand(), a.configCommand(), a.versionCommand(),
		a.createCommand(), a.showCommand(), a.listCommand(), a.updateCommand(), a.deleteCommand(), a.depthCommand(), a.whyStuckCommand(),
		a.publishCommand(), a.consumeCommand(), a.ackCommand(), a.nackCommand(), a.rejectCommand(), a.extendCommand(),
		a.dlqCommand(), a.mergeCommand("", "merge-dlq", "merge_dlq"), a.purgeCommand("", "purge-dlq", "purge_dlq"), a.purgeQueuesCommand(), a.cancelCommand(), a.seekCommand(),
		a.peekCommand(), a.sealCommand(), a.verifyCommand(), a.inspectCommand(), a.benchCommand(), a.metadataCommand(), a.schemaCommand(),
	)
	root.AddCommand(a.hookedCommands()...)
	groupCommands(root)
	onlyOnce(root)
	wrapHelp(root)
	return root
}

// groupCommands has the help list first what programs and their developers need, and then what runs a server.
func groupCommands(root *cobra.Command) {
	const users, operators = "users", "operators"
	root.AddGroup(&cobra.Group{ID: users, Title: "Queues, groups and messages:"}, &cobra.Group{ID: operators, Title: "Servers and their data:"})
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "serve", "config", "seal", "verify", "inspect", "bench", "metadata", "schema":
			cmd.GroupID = operators
		case "version", "demo", "completion", "help":
		default:
			cmd.GroupID = users
		}
	}
}

// checkFlags refuses what no command takes.
func (a *app) checkFlags(cmd *cobra.Command) error {
	switch a.format {
	case formatTable, formatJSON, formatYAML:
	default:
		return core.Errorf(core.CodeBadArgument, "output format %q is unknown; use table, json or yaml", a.format)
	}
	if a.timeout <= 0 {
		return core.Errorf(core.CodeBadArgument, "timeout %s is not above 0; use something like 30s", a.timeout)
	}
	a.timeout = min(a.timeout, core.LongestWait)
	if cmd.Name() == "serve" { // whose flags are settings, of which some may be empty
		return nil
	}
	return checkEmpty(cmd)
}

// run makes a cobra RunE of fn and notes that a command was reached.
func (a *app) run(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.ran = true
		return fn(cmd.Context(), args)
	}
}

// parent is a command that only holds others; the first of them is its example.
func parent(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: subs[0].Example, Args: unknownCommand}
	cmd.RunE = needsCommand
	cmd.AddCommand(subs...)
	return cmd
}

func needsCommand(cmd *cobra.Command, _ []string) error {
	return core.Errorf(core.CodeBadArgument, "%q needs a command after it; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
}

// unknownCommand refuses what is not a subcommand and suggests what might have been meant.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := "see `" + cmd.CommandPath() + " --help`"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "? See `" + cmd.CommandPath() + " --help`"
	} else if kind := kindOf(cmd, args); kind != "" {
		hint = "did you mean `" + cmd.CommandPath() + " " + kind + " " + clip(strings.Join(args, " ")) + "`? See `" + cmd.CommandPath() + " --help`"
	}
	return core.Errorf(core.CodeBadArgument, "unknown command %q for %q; %s", clip(args[0]), cmd.CommandPath(), hint)
}

// kindOf is the subcommand of cmd for arguments that name a queue or a group, when its name was left out; "" if there
// is none.
func kindOf(cmd *cobra.Command, args []string) string {
	kind := "queue"
	if len(args) == 2 {
		kind = "group"
	}
	named := strings.HasPrefix(args[0], "/") && len(args) <= 2
	if named && slices.ContainsFunc(cmd.Commands(), func(sub *cobra.Command) bool { return sub.Name() == kind }) {
		return kind
	}
	return ""
}

// exactly and between check the number of arguments.
func exactly(n int) cobra.PositionalArgs { return between(n, n) }

func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		takes := plural(most, "argument")
		switch {
		case len(args) >= least && len(args) <= most:
			return nil
		case most == 0:
			takes = "no arguments"
		case least < most:
			takes = strconv.Itoa(least) + " to " + takes
		}
		return core.Errorf(core.CodeBadArgument, "\"%s %s\" takes %s, not %d; see `%s --help`",
			cmd.Parent().CommandPath(), cmd.Use, takes, len(args), cmd.CommandPath())
	}
}

func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: a.run(func(_ context.Context, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return core.Errorf(core.CodeBadArgument, "unknown command %q; see `columba --help`", clip(strings.Join(args, " ")))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		}),
	}
}

func plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// clip keeps hostile input from filling an error line.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
