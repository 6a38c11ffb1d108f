package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks in a second, of /proc (USER_HZ).
const ticks = 100

// Command is a process that ends with this one, and gets none of its environment but what programs need.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// WithStderr adds to the error of a process what it wrote.
func WithStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}

// CPU is the CPU time that a process has used, in seconds.
func CPU(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the state on, which is field 3
	user, err := strconv.ParseFloat(f[11], 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseFloat(f[12], 64)
	return (user + system) / ticks, err
}

// OwnCPU is the CPU time of this process, in seconds.
func OwnCPU() float64 { return usage(syscall.RUSAGE_SELF) }

// usage is the CPU time of this process, or of the children it has waited for, in seconds.
func usage(who int) float64 {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// Ports for those who cannot choose their own come from below the range out of which systems give them to connections.
const (
	lowestPort = 20_000
	portRange  = 10_000
)

// FreePorts are addresses of loopback that nobody listens on just now, no two the same.
func FreePorts(n int) (addrs []string, err error) {
	for range 100 * n {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", lowestPort+rand.N(portRange))); err != nil {
			continue
		}
		defer l.Close() // so that none is chosen twice
		if addrs = append(addrs, l.Addr().String()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("no free ports: %w", err)
}
