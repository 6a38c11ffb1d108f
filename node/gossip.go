package node

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// gossipOffset is the distance of the default gossip port from the one port.
const gossipOffset = 1000

// clustered reports whether the process looks for others.
func (c Config) clustered() bool {
	return c.Gossip != "" || len(c.Join) > 0 || !slices.Equal(slices.Sorted(slices.Values(c.Roles)), slices.Sorted(slices.Values(Roles)))
}

// gossipMembers is how many members of gossip the process has: its own, and one for each further store host.
func (c Config) gossipMembers() int {
	switch {
	case !c.clustered():
		return 0
	case slices.Contains(c.Roles, RoleStore):
		return max(1, c.Stores)
	}
	return 1
}

// holdsMetadata reports whether the cluster's records are in this process.
func (c Config) holdsMetadata() bool {
	return !c.inCassandra() && slices.Contains(c.Roles, RoleController)
}

// mark tells other hosts whether they can ask this process for the cluster's records.
func (c Config) mark() []string {
	switch {
	case c.holdsMetadata():
		return []string{membership.RoleMetadata}
	case c.relaysMetadata():
		return []string{membership.RoleRelay}
	}
	return nil
}

// replicas is how many copies a queue gets whose creator does not say.
func (c Config) replicas() int {
	switch {
	case c.Replicas > 0:
		return c.Replicas
	case c.clustered():
		return 3
	}
	return min(3, c.Stores)
}

// gossipAddress is where a process of a cluster gossips. The configuration is valid.
func (c Config) gossipAddress() string {
	if c.Gossip != "" {
		return c.Gossip
	}
	host, text, _ := net.SplitHostPort(c.Listen)
	port, _ := strconv.Atoi(text)
	if port != 0 {
		port += gossipOffset
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// gossipAdvertise is the address by which others reach it; its port 0 is the one bound to.
func (c Config) gossipAdvertise() string {
	if c.Advertise == "" {
		return ""
	}
	host, _, _ := net.SplitHostPort(c.Advertise)
	return net.JoinHostPort(host, "0")
}

func (c Config) validateGossip() error {
	for _, addr := range c.Join {
		host, err := splitAddress("join", addr)
		if err != nil {
			return err
		}
		if unspecified(host) {
			return core.Errorf(core.CodeBadArgument, "join %s is no address that can be reached; name a member's gossip address, like 10.0.0.7:5922", addr)
		}
	}
	if c.Gossip == "" {
		_, text, _ := net.SplitHostPort(c.Listen)
		if port, _ := strconv.Atoi(text); c.clustered() && port+gossipOffset > 65535 {
			return core.Errorf(core.CodeBadArgument, "listen %s leaves no port for gossip, which is %d higher; name one with --gossip HOST:PORT", c.Listen, gossipOffset)
		}
		return nil
	}
	host, err := splitAddress("gossip", c.Gossip)
	if err != nil {
		return err
	}
	if c.Gossip == c.Listen && !strings.HasSuffix(c.Gossip, ":0") {
		return core.Errorf(core.CodeBadArgument, "gossip %s is the address of --listen, which has another use; leave the flag out for the port that is %d higher, or name a port of its own", c.Gossip, gossipOffset)
	}
	if !loopback(host) && !c.Insecure {
		return core.Errorf(core.CodeBadArgument, "gossip %s can be reached from other machines, and there is neither encryption nor authentication: "+
			"any process that reaches it may join the cluster; use 127.0.0.1, or add --insecure if the network itself keeps others out", c.Gossip)
	}
	if unspecified(host) && c.Advertise == "" {
		return core.Errorf(core.CodeBadArgument, "gossip %s is every address of this machine; say with --advertise HOST:PORT which one others shall use", c.Gossip)
	}
	return nil
}
