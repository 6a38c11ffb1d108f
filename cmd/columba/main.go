// Command columba is the server, the client and the tools of Columba in one binary.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/columbamq/columba/tools/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())
	stop()
	os.Exit(code)
}
