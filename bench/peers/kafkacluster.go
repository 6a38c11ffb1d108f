package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/columbamq/columba/bench/machine"
)

// kafkaCluster is an id as Kafka wants them: 16 bytes in base 64.
const kafkaCluster = "Y29sdW1iYS1iZW5jaC0xMg"

// serveKafka runs three nodes, each a broker and a controller, with the flags that Kafka's own scripts give Java.
func serveKafka(ctx context.Context, s *site, c *cluster, durable bool) error {
	jars := filepath.Join(s.peers, "kafka", "lib", "*")
	if _, err := kafkaVersion(s); err != nil {
		return err
	}
	ports, err := machine.FreePorts(2 * nodes)
	if err != nil {
		return err
	}
	c.addrs = ports[:nodes]
	var voters []string
	for i, addr := range ports[nodes:] {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, addr))
	}
	var properties []string
	for i, addr := range c.addrs {
		name := fmt.Sprint("node", i+1)
		text := kafkaProperties(i+1, addr, ports[nodes+i], strings.Join(voters, ","), filepath.Join(c.dir, name), durable)
		path, err := c.write(name+".properties", text)
		if err != nil {
			return err
		}
		properties = append(properties, path)
		// One compiler is enough for a process that lives a second.
		format := machine.Command(ctx, "java", "-XX:TieredStopAtLevel=1", "-cp", jars,
			"kafka.tools.StorageTool", "format", "-t", kafkaCluster, "-c", path)
		if out, err := format.CombinedOutput(); err != nil {
			return fmt.Errorf("format: %w: %s", err, out)
		}
	}
	var started []*server
	for i, path := range properties {
		node, err := c.run(fmt.Sprint("node", i+1), nil, "java", "-Xms"+s.heap, "-Xmx"+s.heap, "-server", "-XX:+UseG1GC",
			"-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
			"-Djava.awt.headless=true", "-Dorg.apache.logging.log4j.level=WARN", "-cp", jars, "kafka.Kafka", path)
		if err != nil {
			return err
		}
		started = append(started, node)
	}
	var errs []error
	for i, node := range started {
		errs = append(errs, node.awaitPort(ctx, c.addrs[i]))
	}
	return errors.Join(errs...)
}

func kafkaProperties(id int, addr, controller, voters, dir string, durable bool) string {
	var b strings.Builder
	for _, kv := range [][2]string{
		{"process.roles", "broker,controller"},
		{"node.id", fmt.Sprint(id)},
		{"controller.quorum.voters", voters},
		{"listeners", "PLAINTEXT://" + addr + ",CONTROLLER://" + controller},
		{"advertised.listeners", "PLAINTEXT://" + addr},
		{"inter.broker.listener.name", "PLAINTEXT"},
		{"controller.listener.names", "CONTROLLER"},
		{"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"},
		{"log.dirs", dir},
		{"offsets.topic.replication.factor", fmt.Sprint(replicas)},
		{"offsets.topic.num.partitions", "8"},
		{"share.coordinator.state.topic.replication.factor", fmt.Sprint(replicas)},
		{"share.coordinator.state.topic.num.partitions", "8"},
		{"group.initial.rebalance.delay.ms", "0"},
		// A leader must not lose its office because another program had the CPU for a second or two.
		{"controller.quorum.election.timeout.ms", "10000"},
		{"controller.quorum.fetch.timeout.ms", "20000"},
		{"broker.session.timeout.ms", "30000"},
		// As many messages as the broker lets consumers hold; the default is 2,000.
		{"group.share.max.partition.max.record.locks", "10000"},
		{"group.share.partition.max.record.locks", "10000"},
	} {
		fmt.Fprintf(&b, "%s=%s\n", kv[0], kv[1])
	}
	if durable {
		fmt.Fprintf(&b, "log.flush.interval.messages=1\nmin.insync.replicas=%d\n", replicas)
	}
	return b.String()
}

// kafkaVersion is that of the jars, and that of Java.
func kafkaVersion(s *site) (string, error) {
	jars, err := filepath.Glob(filepath.Join(s.peers, "kafka", "lib", "kafka_2.13-*.jar"))
	if err != nil || len(jars) != 1 {
		return "", fmt.Errorf("%w: %d jars of Kafka in %s: make peers", errNotInstalled, len(jars), s.peers)
	}
	java, err := output("java", "-version")
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "kafka_2.13-"), ".jar")
	return fmt.Sprintf("Kafka %s, %s, heap of each node %s", version, java, s.heap), err
}
