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
	Addr   string // the server, for the worker
	// Progress starts a bar; it draws on a terminal only.
	Progress func(name string, total int) (add func(n int), end func())
}

// Demo runs the README's main job, DemoWorker a worker process of it; nil leaves the command out. The program sets them
// before Main.
var (
	Demo       func(ctx context.Context, o DemoOptions, s Streams) error
	DemoWorker func(ctx context.Context, o DemoOptions) error
)

// hookedCommands are those whose work is done by other packages that the program chose.
func (a *app) hookedCommands() []*cobra.Command {
	if Demo == nil {
		return nil
	}
	var o DemoOptions
	cmd := &cobra.Command{
		Use: "demo", Short: "Run a job on real files, with a server of its own, crash it twice, and verify the result",
		Example: "  columba demo\n  columba demo --dir ~/src",
		Args:    exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			o.Format = a.format
			o.Progress = func(name string, total int) (func(int), func()) {
				p := a.progress(name, total)
				return p.add, p.finish
			}
			return Demo(ctx, o, Streams{In: a.stdin, Out: a.stdout, Err: a.stderr, Env: a.env})
		}),
	}
	cmd.PersistentFlags().StringVar(&o.Dir, "dir", "", "directory to work on; default: the Go installation's own tree")
	cmd.AddCommand(&cobra.Command{
		Use: "worker", Short: "Work for the demo's hash group, as a process that can be killed", Hidden: true,
		Args: exactly(0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			o.Addr = a.addr
			return DemoWorker(ctx, o)
		}),
	})
	return []*cobra.Command{cmd}
}
