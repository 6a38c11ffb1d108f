// Command columba is the server, the client and the tools of Columba in one binary.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/tools/cli"
	"github.com/columbamq/columba/tools/demo"
)

func main() {
	cli.Demo, cli.DemoWorker = runDemo, runDemoWorker
	ctx, stop := lifecycle.Signals(context.Background())
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())
	stop()
	os.Exit(code)
}

// runDemo is `columba demo`: the server and one worker are processes of this same program.
func runDemo(ctx context.Context, o cli.DemoOptions, s cli.Streams) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return demo.Run(ctx, demo.Options{Dir: o.Dir, Program: program, Out: s.Out, Log: s.Err, Progress: o.Progress, Format: o.Format})
}

func runDemoWorker(ctx context.Context, o cli.DemoOptions) error {
	return demo.Worker(ctx, o.Addr, o.Dir)
}
