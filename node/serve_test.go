package node

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// serveForTest is what a child process does: Serve with one fake role, whose drain never ends when data ends in
// "/stuck".
func serveForTest(data string) int {
	cfg := DefaultConfig()
	cfg.Listen, cfg.Data = "127.0.0.1:0", data
	f := newFakeRole()
	if filepath.Base(data) == "stuck" {
		f.drained = make(chan struct{})
	}
	err := serve(context.Background(), cfg, "v1", os.Stdout, os.Stderr, func(*resources) ([]namedRole, error) { return []namedRole{{"fake", f}}, nil })
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return core.CodeOf(err).Exit()
	}
	return 0
}

// startServer starts a child process and returns the address in its ready line, and all that it prints after it.
func startServer(t *testing.T, data string) (cmd *exec.Cmd, line string, rest <-chan string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), "COLUMBA_TEST_SERVE="+data)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err = lines.ReadString('\n'); err != nil {
		t.Fatalf("no ready line: %v", errors.Join(err, cmd.Wait()))
	}
	c := make(chan string, 1)
	go func() {
		more, _ := io.ReadAll(lines)
		c <- string(more)
	}()
	return cmd, line, c
}

func TestServe_SignalDrainsAndExitsWithZero(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			t.Logf("SKIPPED: these tests were started with %s ignored, as by nohup", sig)
			continue
		}
		data := filepath.Join(t.TempDir(), "data dir")
		cmd, line, rest := startServer(t, data)
		if !strings.HasPrefix(line, "ready addr=127.0.0.1:") || !strings.HasSuffix(line, " roles=all data=\""+data+"\"\n") {
			t.Errorf("ready line: got %q", line)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if more := receive(t, "end of the output", rest); more != "" {
			t.Errorf("more on stdout after the ready line: %q", more)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %s: got %v, want exit code 0", sig, err)
		}
	}
}

// TestServe_StopsSoonBesideAnUnusedConnection stops servers to which somebody has just connected without asking
// anything, as clients do that keep a connection in reserve.
func TestServe_StopsSoonBesideAnUnusedConnection(t *testing.T) {
	for range 20 {
		p := start(t, testConfig(t), newFakeRole())
		waitUntil(t, "ready", func() bool { _, text := p.get(http.DefaultClient, "/readyz"); return text == "ready" })
		http.DefaultClient.CloseIdleConnections()
		unused, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer unused.Close()
		p.get(http.DefaultClient, "/healthz") // accepted after the other one
		began := time.Now()
		p.cancel()
		if err := receive(t, "the end", p.ended); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > drainTimeout/4 {
			t.Fatalf("the stop took %s", took)
		}
	}
}

func TestServe_SecondSignalEndsAtOnce(t *testing.T) {
	cmd, line, rest := startServer(t, filepath.Join(t.TempDir(), "stuck"))
	addr := strings.TrimPrefix(strings.Fields(line)[1], "addr=")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, address: addr}
	waitUntil(t, "draining", func() bool { _, text := p.get(http.DefaultClient, "/readyz"); return text == "draining" })
	http.DefaultClient.CloseIdleConnections()
	began := time.Now()
	waitUntil(t, "the end", func() bool { // one that comes within a moment of the first is taken for the same
		err := cmd.Process.Signal(syscall.SIGTERM)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-rest:
			return true
		default:
			return false
		}
	})
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("got %v, want an end by the signal", err)
	}
	if took := time.Since(began); took > drainTimeout/2 {
		t.Errorf("the second signal took %s", took)
	}
}

// TestServe_NobodyElseReadsTheData serves a directory that exists and that everybody may enter, then one that a server
// has left open.
func TestServe_NobodyElseReadsTheData(t *testing.T) {
	data := t.TempDir()
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, round := range []string{"a new one", "one that was left open"} {
		cmd, _, rest := startServer(t, data)
		err := filepath.WalkDir(data, func(path string, e os.DirEntry, err error) error {
			if err != nil || path == data {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %s has mode %s", round, path, info.Mode())
			}
			if e.IsDir() && info.Mode().Perm()&0o077 == 0 && round != "a new one" {
				return filepath.SkipDir
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-rest
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(data, "store"), 0o755); err != nil && round == "a new one" {
			t.Fatal(err)
		}
		for name, mode := range map[string]os.FileMode{"store": 0o755, "metadata": 0o755, "host.json": 0o644, "lock": 0o644} {
			if err := os.Chmod(filepath.Join(data, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
}
