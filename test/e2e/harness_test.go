package e2e

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// harness is a running `columba serve`, and command lines against it.
type harness struct {
	*process.Server
	t testing.TB
}

// newHarness runs a server on a new data directory and a free port until the test ends.
func newHarness(t testing.TB) *harness {
	t.Helper()
	return &harness{process.StartServer(t), t}
}

// command is a command line against the server that does not outlive the test.
func (s *harness) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, process.Program, args...)
	cmd.Env = []string{"COLUMBA_ADDR=" + s.Addr, "HOME=" + os.TempDir()}
	return cmd
}
