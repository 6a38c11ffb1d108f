package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/client"
)

// broker is a kind of server in one of its settings.
type broker struct {
	name    string
	kind    string // of the driver
	title   string
	durable bool   // it syncs before it acknowledges
	slow    bool   // it is on a JVM, which compiles while it warms up
	says    string // the settings
	serve   func(ctx context.Context, s *site, c *cluster, durable bool) error
	version func(s *site) (string, error)
}

// brokers in the order of the results.
var brokers = []broker{
	{
		name: "columba", kind: "columba", title: "Columba", durable: true, serve: serveColumba, version: columbaVersion,
		says: "the default: fsync on all three replicas before an acknowledgement. Six processes: three stores, " +
			"an input host, an output host, a controller with the frontend",
	},
	{
		name: "nats", kind: "nats", title: "NATS JetStream", serve: serveNATS, version: natsVersion,
		says: "the default: fsync every two minutes; an acknowledgement when two of three servers have the message",
	},
	{
		name: "nats-fsync", kind: "nats", title: "NATS JetStream, fsync", durable: true,
		serve: serveNATS, version: natsVersion,
		says: "`sync_interval: always`; an acknowledgement when two of three servers have the message",
	},
	{
		name: "kafka", kind: "kafka", title: "Kafka", slow: true, serve: serveKafka, version: kafkaVersion,
		says: "the default: no fsync. KRaft in combined mode; acks=all; consumers are a share group",
	},
	{
		name: "kafka-fsync", kind: "kafka", title: "Kafka, fsync", durable: true, slow: true,
		serve: serveKafka, version: kafkaVersion,
		says: "`log.flush.interval.messages=1`, `min.insync.replicas=3`. KRaft in combined mode; acks=all; consumers are " +
			"a share group",
	},
	{
		name: "rabbitmq", kind: "rabbitmq", title: "RabbitMQ quorum queue", durable: true,
		serve: serveRabbitMQ, version: rabbitMQVersion,
		says: "the default: fsync before a confirm, which comes when two of three servers have the message; there is no " +
			"other setting",
	},
}

func brokerOf(name string) (broker, error) {
	for _, b := range brokers {
		if b.name == name {
			return b, nil
		}
	}
	return broker{}, fmt.Errorf("no broker %q", name)
}

var readyLine = regexp.MustCompile(`(?m)^ready addr=(\S+) .*?gossip=(\S+)$`)

// serveColumba runs a process for each role, and three stores.
func serveColumba(ctx context.Context, s *site, c *cluster, _ bool) error {
	if _, err := os.Stat(s.columba); err != nil {
		return fmt.Errorf("%w: make build: %w", errNotInstalled, err)
	}
	join := ""
	for _, p := range []struct{ name, roles string }{
		{"controller", "controller,frontend"},
		{"store1", "storehost"}, {"store2", "storehost"}, {"store3", "storehost"},
		{"input", "inputhost"}, {"output", "outputhost"},
	} {
		args := []string{
			s.columba, "serve", "--data", filepath.Join(c.dir, p.name), "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
			"--roles", p.roles, "--log-level", "warn",
		}
		if join != "" {
			args = append(args, "--join", join)
		}
		node, err := c.run(p.name, nil, args...)
		if err != nil {
			return err
		}
		said, err := node.awaitLine(ctx, readyLine)
		if err != nil {
			return err
		}
		if join == "" {
			c.addrs, join = []string{said[1]}, said[2]
		}
	}
	cl, err := client.Dial(ctx, c.addr())
	if err != nil {
		return err
	}
	defer cl.Close()
	return again(ctx, func(ctx context.Context) error {
		hosts, err := cl.Admin().ListHosts(ctx)
		if err == nil && len(hosts) != len(c.procs) {
			err = fmt.Errorf("the frontend knows %d hosts of %d", len(hosts), len(c.procs))
		}
		return err
	})
}

func columbaVersion(s *site) (string, error) { return output(s.columba, "version") }

func serveNATS(ctx context.Context, s *site, c *cluster, durable bool) error {
	bin := filepath.Join(s.peers, "nats-server")
	if _, err := os.Stat(bin); err != nil {
		return fmt.Errorf("%w: make peers: %w", errNotInstalled, err)
	}
	ports, err := machine.FreePorts(2 * nodes)
	if err != nil {
		return err
	}
	routes := ports[nodes:]
	c.addrs = ports[:nodes]
	sync := ""
	if durable {
		sync = ", sync_interval: always"
	}
	for i, addr := range c.addrs {
		name := fmt.Sprint("node", i)
		path, err := c.write(name+".conf", fmt.Sprintf(
			"server_name: n%d\nlisten: %q\njetstream { store_dir: %q%s }\ncluster { name: bench, listen: %q, routes: [%s] }\n",
			i, addr, filepath.Join(c.dir, name), sync, routes[i], "nats://"+strings.Join(routes, ", nats://")))
		if err != nil {
			return err
		}
		node, err := c.run(name, nil, bin, "-c", path)
		if err != nil {
			return err
		}
		if err := node.awaitPort(ctx, addr); err != nil {
			return err
		}
	}
	return nil
}

func natsVersion(s *site) (string, error) {
	return output(filepath.Join(s.peers, "nats-server"), "--version")
}

// output is the first line that a command prints.
func output(name string, args ...string) (string, error) {
	text, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", errNotInstalled, name, err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Join(strings.Fields(line), " "), nil
}
