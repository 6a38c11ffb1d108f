package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/bench/measure"
)

// natsCluster is three NATS servers with JetStream that sync every write to disk before they answer for it.
type natsCluster struct {
	load string // the load client
	addr string // of all servers
	dir  string
	cmds []*exec.Cmd
}

// nats starts one on new directories and makes a stream with three replicas. Its servers have to be told their ports,
// and those of each other: when somebody else has taken one meanwhile, it begins anew with others.
func (r *rig) nats(name string) (n *natsCluster, err error) {
	for range portTries {
		if n, err = r.natsOnce(name); err == nil || r.ctx.Err() != nil {
			break
		}
	}
	return n, err
}

const portTries = 3

func (r *rig) natsOnce(name string) (*natsCluster, error) {
	n := &natsCluster{load: filepath.Join(r.peers, "natsload"), dir: filepath.Join(r.dir, name)}
	ports, err := machine.FreePorts(2 * replicatedStores)
	if err != nil {
		return nil, err
	}
	clients, routes := ports[:replicatedStores], ports[replicatedStores:]
	for i := range clients {
		if err := n.start(r.ctx, r.peers, i, clients[i], routes); err != nil {
			n.remove()
			return nil, err
		}
	}
	n.addr = strings.Join(clients, ",")
	if _, err := n.run(r.ctx, measure.Job{Kind: "create"}); err != nil {
		n.remove()
		return nil, err
	}
	return n, nil
}

func (n *natsCluster) start(ctx context.Context, bin string, i int, client string, routes []string) error {
	dir := filepath.Join(n.dir, fmt.Sprint("node", i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config := fmt.Sprintf("server_name: n%d\nlisten: %q\njetstream { store_dir: %q, sync_interval: always }\ncluster { name: bench, listen: %q, routes: [%s] }\n",
		i, client, dir, routes[i], "nats://"+strings.Join(routes, ", nats://"))
	path := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return err
	}
	cmd := machine.Command(ctx, filepath.Join(bin, "nats-server"), "-c", path, "-l", filepath.Join(dir, "log"))
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; build the peers with: make bench-replicated", err)
	}
	n.cmds = append(n.cmds, cmd)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", client)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("nats-server does not listen: %w", err)
		}
	}
}

// run does the job against the stream.
func (n *natsCluster) run(ctx context.Context, j measure.Job) (measure.Outcome, error) {
	var o measure.Outcome
	j.Addr, j.Queue = n.addr, "bench"
	arg, err := json.Marshal(j)
	if err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience+j.Warm+j.For)
	defer cancel()
	cmd := machine.Command(ctx, n.load, string(arg))
	text, err := cmd.Output()
	if err != nil {
		return o, fmt.Errorf("natsload %s: %w", arg, machine.WithStderr(err))
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("natsload %s said %.200q: %w", arg, text, err)
	}
	o.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if o.Errors > 0 {
		return o, fmt.Errorf("natsload %s: %d messages failed", arg, o.Errors)
	}
	return o, nil
}

// cpu is what all servers have used, in seconds.
func (n *natsCluster) cpu() (float64, error) {
	sum := 0.0
	var errs []error
	for _, c := range n.cmds {
		v, err := machine.CPU(c.Process.Pid)
		sum += v
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// remove stops the servers and deletes their directories.
func (n *natsCluster) remove() {
	for _, c := range n.cmds {
		_ = c.Process.Signal(syscall.SIGKILL)
		_ = c.Wait()
	}
	os.RemoveAll(n.dir)
}
