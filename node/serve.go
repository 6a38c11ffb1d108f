package node

import (
	"context"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/telemetry"
)

// Serve runs a process as the command line does: it logs to stderr, writes exactly one line to stdout, when it is
// ready, and drains when ctx ends or at the first SIGINT, SIGTERM or SIGHUP, which ends it with nil. A second signal
// ends the process at once.
func Serve(ctx context.Context, cfg Config, version string, stdout, stderr io.Writer) error {
	return serve(ctx, cfg, version, stdout, stderr, nil)
}

// serve is Serve with other roles than the configuration's, unless build is nil.
func serve(ctx context.Context, cfg Config, version string, stdout, stderr io.Writer, build func(*resources) ([]namedRole, error)) error {
	level, err := telemetry.ParseLevel(cfg.LogLevel)
	if err != nil {
		return core.Errorf(core.CodeBadArgument, "%w", err)
	}
	log, err := telemetry.NewLogger(stderr, level, cfg.LogFormat)
	if err != nil {
		return core.Errorf(core.CodeBadArgument, "%w", err)
	}
	syscall.Umask(0o077) // messages and keys are nobody else's, whatever creates their files
	ctx, stop := lifecycle.Signals(ctx)
	defer stop()
	n, err := New(cfg, Options{Log: log, Version: version, Ready: func(r Ready) {
		if _, err := fmt.Fprintln(stdout, r.Line()); err != nil {
			log.Warn("the ready line cannot be written to stdout", telemetry.KeyErr, err)
		}
	}})
	if err != nil {
		return err
	}
	if build != nil {
		n.build = build
	}
	defer tuneCollector(cfg.Roles)()
	reclaiming, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { reclaim(reclaiming, log) })
	defer background.Wait()
	defer cancel()
	if err := n.Run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}
