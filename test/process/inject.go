package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Injection changes what system calls of a process do, until End.
type Injection struct {
	t   testing.TB
	cmd *exec.Cmd
	log string // of the calls
}

// Inject has calls of the server fail or wait, as `strace -e inject=` says it, such as "fdatasync:error=EIO:when=3".
// The test is skipped where there is no strace. The server has to run until End.
func (s *Server) Inject(what string) *Injection {
	s.t.Helper()
	if _, err := exec.LookPath("strace"); err != nil || runtime.GOOS != "linux" {
		s.t.Skip("SKIPPED: no strace; install it to have failing system calls tested")
	}
	call, _, _ := strings.Cut(what, ":")
	i := &Injection{t: s.t, log: filepath.Join(s.t.TempDir(), "calls")}
	i.cmd = exec.Command("strace", "-f", "-o", i.log, "-e", "trace="+call, "-e", "inject="+what, "-p", strconv.Itoa(s.Pid()))
	said := new(Buffer)
	i.cmd.Stderr = said
	if err := i.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	EventuallyOr(s.t, Patience, func() bool { return i.traces(s.Pid()) }, func() string { return fmt.Sprintf("%s is traced; strace says %s", s.Name, said) })
	return i
}

// traces reports whether all threads of a process are traced.
func (i *Injection) traces(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return false
	}
	tracer := fmt.Appendf(nil, "\nTracerPid:\t%d\n", i.cmd.Process.Pid)
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		if err == nil && !bytes.Contains(text, tracer) {
			return false
		}
	}
	return true
}

// Count is how many calls were changed so far.
func (i *Injection) Count() int {
	i.t.Helper()
	text, err := os.ReadFile(i.log)
	if err != nil && !os.IsNotExist(err) {
		i.t.Fatal(err)
	}
	return bytes.Count(text, []byte("(INJECTED)")) + bytes.Count(text, []byte("(DELAYED)"))
}

// End has the calls be what they were.
func (i *Injection) End() {
	i.t.Helper()
	_ = i.cmd.Process.Signal(syscall.SIGINT)
	_ = i.cmd.Wait() // it ends by the signal
}
