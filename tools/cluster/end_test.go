package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inCluster has the test's program be the cluster; as `columba` it plays the servers and their list of hosts.
const inCluster = "COLUMBA_TEST_CLUSTER"

// portsTaken has the servers fail as if another process used their ports.
const portsTaken = "COLUMBA_TEST_PORTS_TAKEN"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "serve":
		playServer()
	case len(os.Args) > 3 && os.Args[3] == "list":
		host, port, _ := net.SplitHostPort(os.Args[2])
		first, _ := strconv.Atoi(port)
		for i := range 8 {
			fmt.Printf(`{"host":"h%d","addr":"%s"}`+"\n", i, net.JoinHostPort(host, strconv.Itoa(first+i)))
		}
	case os.Getenv(inCluster) != "":
		os.Args = append(os.Args[:1], "-program", os.Args[0], "-data", os.Getenv(inCluster))
		main()
	default:
		os.Exit(m.Run())
	}
}

// playServer notes its process in its data directory, and its end by SIGTERM there too.
func playServer() {
	if os.Getenv(portsTaken) != "" {
		fmt.Fprintln(os.Stderr, "error: listen on 127.0.0.1:4922: bind: address already in use (conflict)")
		os.Exit(4)
	}
	data := os.Args[3]
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	os.MkdirAll(data, 0o755)
	fmt.Println("ready ")
	<-c
	os.WriteFile(filepath.Join(data, "drained"), nil, 0o644)
}

// TestCluster_NamesOtherPorts: the servers advise --listen, which `make cluster` lacks.
func TestCluster_NamesOtherPorts(t *testing.T) {
	t.Setenv(portsTaken, "1")
	c := newCluster(options{program: os.Args[0], port: 4922, data: t.TempDir()})
	err := c.start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "make cluster CLUSTERPORT=") {
		t.Errorf("a start on ports that are taken: %v", err)
	}
	if err := c.stop(io.Discard); err != nil {
		t.Error(err)
	}
}

// TestCluster_EndsItsProcesses ends a cluster in each way: its processes drain.
func TestCluster_EndsItsProcesses(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		if sig == syscall.SIGKILL && runtime.GOOS != "linux" {
			continue
		}
		if signal.Ignored(sig) {
			t.Logf("SKIPPED: these tests were started with %s ignored, as by nohup", sig)
			continue
		}
		t.Run(sig.String(), func(t *testing.T) {
			data := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), inCluster+"="+data)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewScanner(out)
			for in.Scan() && !strings.Contains(in.Text(), "The cluster is ready") {
			}
			cmd.Process.Signal(sig)
			for in.Scan() {
			}
			if err := cmd.Wait(); sig != syscall.SIGKILL && err != nil {
				t.Error(err)
			}
			drained := 0
			for deadline := time.Now().Add(20 * time.Second); drained < 8 && time.Now().Before(deadline); {
				found, _ := filepath.Glob(filepath.Join(data, "*", "drained"))
				drained = len(found)
			}
			if drained != 8 {
				t.Errorf("%d of 8 processes drained", drained)
			}
		})
	}
}
