package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/columbamq/columba/bench/machine"
)

// rabbitMQRoot is where install.sh has put the packages.
func rabbitMQRoot(s *site) string { return filepath.Join(s.peers, "rabbitmq", "usr", "lib") }

func rabbitMQHome(s *site) (string, error) {
	homes, err := filepath.Glob(filepath.Join(rabbitMQRoot(s), "rabbitmq", "lib", "rabbitmq_server-*"))
	if err != nil || len(homes) != 1 {
		return "", fmt.Errorf("%w: no RabbitMQ in %s: make peers says why", errNotInstalled, s.peers)
	}
	return homes[0], nil
}

// rabbitMQVersion is that of the broker, and that of its runtime.
func rabbitMQVersion(s *site) (string, error) {
	home, err := rabbitMQHome(s)
	if err != nil {
		return "", err
	}
	otp, err := filepath.Glob(filepath.Join(rabbitMQRoot(s), "erlang", "releases", "[0-9]*", "OTP_VERSION"))
	if err != nil || len(otp) != 1 {
		return "", fmt.Errorf("%w: no Erlang beside RabbitMQ", errNotInstalled)
	}
	erlang, err := os.ReadFile(otp[0])
	version := strings.TrimPrefix(filepath.Base(home), "rabbitmq_server-")
	return fmt.Sprintf("RabbitMQ %s, Erlang %s", version, strings.TrimSpace(string(erlang))), err
}

// serveRabbitMQ runs three nodes that find each other by the list in their configuration. Their names are kept by an
// epmd on a port of its own, which the nodes would start otherwise, and leave behind.
func serveRabbitMQ(ctx context.Context, s *site, c *cluster, _ bool) error {
	home, err := rabbitMQHome(s)
	if err != nil {
		return err
	}
	erlang := filepath.Join(rabbitMQRoot(s), "erlang", "bin")
	ports, err := machine.FreePorts(2*nodes + 1)
	if err != nil {
		return err
	}
	c.addrs = ports[:nodes]
	names := "cluster_formation.peer_discovery_backend = classic_config\n"
	for i := range nodes {
		names += fmt.Sprintf("cluster_formation.classic_config.nodes.%d = n%d@localhost\n", i+1, i)
	}
	config, err := c.write("rabbitmq.conf", names+"log.console = true\nlog.file = false\n")
	if err != nil {
		return err
	}
	plugins, err1 := c.write("plugins", "[].\n")
	cookie, err2 := c.write(".erlang.cookie", "columba-bench")
	if err := errors.Join(err1, err2, os.Chmod(cookie, 0o400)); err != nil {
		return err
	}
	epmd := ports[2*nodes]
	daemon, err := c.run("epmd", nil, filepath.Join(erlang, "epmd"), "-address", "127.0.0.1", "-port", port(epmd))
	if err != nil {
		return err
	}
	if err := daemon.awaitPort(ctx, epmd); err != nil {
		return err
	}
	var started []*server
	for i, addr := range c.addrs {
		name := fmt.Sprint("node", i)
		dir, err := c.subdir(name)
		if err != nil {
			return err
		}
		node, err := c.run(name, []string{
			"HOME=" + c.dir, "PATH=" + erlang + ":" + os.Getenv("PATH"), "LANG=C.UTF-8",
			"ERL_EPMD_PORT=" + port(epmd), "ERL_EPMD_ADDRESS=127.0.0.1",
			"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_CONFIG_FILE=" + config, "RABBITMQ_ENABLED_PLUGINS_FILE=" + plugins,
			"RABBITMQ_NODENAME=n" + fmt.Sprint(i) + "@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			"RABBITMQ_NODE_PORT=" + port(addr), "RABBITMQ_DIST_PORT=" + port(ports[nodes+i]),
			"RABBITMQ_MNESIA_BASE=" + dir, "RABBITMQ_LOG_BASE=" + dir,
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
			"RUNNING_UNDER_SYSTEMD=1", // the script becomes the server
		}, filepath.Join(home, "sbin", "rabbitmq-server"))
		if err != nil {
			return err
		}
		started = append(started, node)
	}
	var errs []error
	for i, node := range started {
		errs = append(errs, node.awaitPort(ctx, c.addrs[i]))
	}
	for i := 1; i < nodes; i++ { // a queue that is made before has fewer replicas
		_, err := started[0].awaitLine(ctx, regexp.MustCompile(fmt.Sprintf("node '?n%d@localhost'? up", i)))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
