package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// Streams are what a hooked command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Env      []string
}

// DemoOptions are the flags of `columba demo`.
type DemoOptions struct {
	Dir    string // the tree to work on; "" for the Go installation's own
	Format string // table, json or yaml
}

// Demo runs the README's main job; nil leaves the command out. The program sets it before Main.
var Demo func(ctx context.Context, o DemoOptions, s Streams) error

// hookedCommands are those whose work is done by other packages that the program chose.
func (a *app) hookedCommands() []*cobra.Command {
	if Demo == nil {
		return nil
	}
	var o DemoOptions
	cmd := &cobra.Command{
		Use: "demo", Short: "Run the main job on real files, with a server of its own, and verify the result",
		Example: "  columba demo\n  columba demo --dir ~/src",
		Args:    exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			o.Format = a.format
			return Demo(ctx, o, Streams{In: a.stdin, Out: a.stdout, Err: a.stderr, Env: a.env})
		}),
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "directory to work on; default: the Go installation's own tree")
	return []*cobra.Command{cmd}
}
