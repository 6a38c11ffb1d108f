package gossip

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestMain is a member instead of the tests when it is started as one: see startChild.
func TestMain(m *testing.M) {
	if join := os.Getenv("COLUMBA_TEST_JOIN"); join != "" {
		os.Exit(memberForTest(join))
	}
	code := m.Run()
	leak := goleak.Find()
	for end := time.Now().Add(probing); leak != nil && time.Now().Before(end); { // Find waits a while itself
		leak = goleak.Find()
	}
	if leak != nil && code == 0 {
		fmt.Fprintln(os.Stderr, leak)
		code = 1
	}
	os.Exit(code)
}

// probing is for how long, on a slow machine, memberlist may go on with a probe that was under way when it was shut
// down: it does not wait for it.
const probing = 10 * time.Second

// memberForTest is a member of a process of its own, until SIGTERM.
func memberForTest(join string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m, err := New(Config{Self: host("child"), Bind: "127.0.0.1:0", Join: []string{join}, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = m.Start(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(m.Self().Run)
	go func() { _, _ = io.Copy(os.Stdout, os.Stdin) }() // ends with the process: see watch
	<-ctx.Done()
	if err := m.Stop(context.Background()); err != nil {
		return 1
	}
	return 0
}

// child is a member in another process, which can be paused and killed.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader // what it was sent by in
	membership.Host
}

// startChild runs a member named child that joins through an address.
func startChild(t *testing.T, join string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), "COLUMBA_TEST_JOIN="+join)
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // no error: it may have ended
		_ = c.cmd.Wait()
	})
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	run, err := core.ParseID(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	c.Host = membership.Host{ID: "child", Run: core.RunID{ID: run}}
	return c
}

// watch asks the child again and again whether it is there, until it is dead or longest is called, which says for how
// long it, or this process, stood still at a stretch.
func (c *child) watch() (longest func() time.Duration) {
	var asked atomic.Int64
	var most time.Duration
	var wg sync.WaitGroup
	began, over := time.Now(), make(chan struct{})
	wg.Go(func() {
		for {
			at := time.Since(began)
			asked.Store(int64(at))
			if _, err := c.in.Write([]byte{0}); err != nil {
				return
			}
			if _, err := c.out.ReadByte(); err != nil {
				return
			}
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
			most = max(most, time.Since(began)-at)
		}
	})
	return sync.OnceValue(func() time.Duration {
		last := time.Since(began) - time.Duration(asked.Load())
		close(over)
		wg.Wait()
		return max(most, last)
	})
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}
