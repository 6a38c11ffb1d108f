package node

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/metadata/cassandra"
)

// The roles a process can serve, in the order in which they start.
const (
	RoleStore      = "storehost"
	RoleController = "controller"
	RoleInput      = "inputhost"
	RoleOutput     = "outputhost"
	RoleFrontend   = "frontend"
)

// Roles are all of them.
var Roles = []string{RoleStore, RoleController, RoleInput, RoleOutput, RoleFrontend}

const allRoles = "all"

// MaxStores is how many store hosts one process may run.
const MaxStores = 16

// MetadataEmbedded keeps the cluster's records in the data directory of the process with the controller.
const MetadataEmbedded = "embedded"

// Config of a process. Each field is a flag, an environment variable and a key of the configuration file: see Settings.
type Config struct {
	// Data is the directory that holds everything this process keeps: its identity, metadata, and the messages. It is made
	// when its parent exists. One process uses it at a time.
	Data string
	// Listen is the host:port of the one port. Port 0 takes a free one, which the ready line names.
	Listen string
	// Advertise is the host:port by which clients and other hosts reach this process. Empty: what Listen is bound to.
	// Needed when Listen names no single address, like 0.0.0.0.
	Advertise string
	// Roles are what the process serves.
	Roles []string
	// Stores is how many store hosts run in this process, each with its own identity, directory and address. More than one
	// shows on one machine what replication does; it does not survive that machine.
	Stores int
	// Gossip is the host:port, UDP and TCP, by which the processes of a cluster find each other. Empty: the port of Listen
	// + 1000 in a cluster, none in a process that serves all roles and joins nobody.
	Gossip string
	// Join are the gossip addresses, host:port, of other members; one that answers is enough. The first of a cluster needs
	// none.
	Join []string
	// Replicas is how many copies the messages of a queue get when its creator does not say. 0: 3 in a cluster, else as
	// many as there are stores in this process, at most 3.
	Replicas int
	// Zone is the failure zone of this host; replicas are spread over zones. Empty: the cluster has none.
	Zone string
	// Metadata says where the cluster's records are: MetadataEmbedded, or the URL of a Cassandra cluster, as
	// cassandra.ParseURL takes it. Processes that serve neither the controller, nor the frontend, nor the output host do
	// not use it.
	Metadata string
	// LogLevel and LogFormat are one of telemetry.Levels and telemetry.Formats.
	LogLevel  string
	LogFormat string
	// HostNames are names by which clients call a server that listens on loopback, besides localhost and the advertised
	// one: those of a proxy before it. Requests for other names are refused.
	HostNames []string
	// Insecure allows to listen on an address that others can reach, although there is neither TLS nor authentication.
	Insecure bool
}

// DefaultConfig is right for a single machine.
func DefaultConfig() Config {
	return Config{
		Data:      "columba-data",
		Listen:    "127.0.0.1:4922",
		Roles:     slices.Clone(Roles),
		Stores:    1,
		Metadata:  MetadataEmbedded,
		LogLevel:  "info",
		LogFormat: "text",
	}
}

// Validate says which field is wrong and what would be right: CodeBadArgument, CodeUnsupported.
func (c Config) Validate() error {
	if c.Data == "" {
		return core.Errorf(core.CodeBadArgument, "data is empty; name a directory")
	}
	if c.Replicas < 0 || c.Replicas > core.MaxReplicas {
		return core.Errorf(core.CodeBadArgument, "replicas %d is not in 0 … %d", c.Replicas, core.MaxReplicas)
	}
	if c.Zone != "" {
		if _, err := core.ParseGroupName(c.Zone); err != nil {
			return core.Errorf(core.CodeBadName, "zone: %w; name it like rack-1 or eu-west-1a", err)
		}
	}
	if err := c.validateMetadata(); err != nil {
		return err
	}
	if _, err := telemetry.ParseLevel(c.LogLevel); err != nil {
		return core.Errorf(core.CodeBadArgument, "%w", err)
	}
	if !slices.Contains(telemetry.Formats, c.LogFormat) {
		return core.Errorf(core.CodeBadArgument, "log format %q is not one of %s", c.LogFormat, strings.Join(telemetry.Formats, ", "))
	}
	if err := c.validateRoles(); err != nil {
		return err
	}
	return c.validateAddresses()
}

func (c Config) validateMetadata() error {
	if c.Metadata == MetadataEmbedded {
		return nil
	}
	if !c.inCassandra() {
		return core.Errorf(core.CodeBadArgument, "metadata is neither %s nor %sHOST,HOST/KEYSPACE; write one of them", MetadataEmbedded, cassandra.Scheme)
	}
	if err := cassandra.CheckURL(c.Metadata); err != nil {
		return core.Errorf(core.CodeBadArgument, "metadata: %w", err)
	}
	return nil
}

func (c Config) validateRoles() error {
	if len(c.Roles) == 0 {
		return core.Errorf(core.CodeBadArgument, "roles is empty; use %s, or some of %s", allRoles, strings.Join(Roles, ","))
	}
	for i, r := range c.Roles {
		if !slices.Contains(Roles, r) {
			return core.Errorf(core.CodeBadArgument, "role %q is unknown; use %s, or some of %s", r, allRoles, strings.Join(Roles, ","))
		}
		if slices.Contains(c.Roles[:i], r) {
			return core.Errorf(core.CodeBadArgument, "role %q is named twice", r)
		}
	}
	if c.Stores < 1 || c.Stores > MaxStores {
		return core.Errorf(core.CodeBadArgument, "stores %d is not in 1 … %d", c.Stores, MaxStores)
	}
	if c.Stores > 1 && !slices.Contains(c.Roles, RoleStore) {
		return core.Errorf(core.CodeBadArgument, "stores %d needs the role %s", c.Stores, RoleStore)
	}
	return nil
}

func (c Config) validateAddresses() error {
	host, err := splitAddress("listen", c.Listen)
	if err != nil {
		return err
	}
	if err := c.validateGossip(); err != nil {
		return err
	}
	if !loopback(host) && !c.Insecure {
		return core.Errorf(core.CodeBadArgument, "listen %s can be reached from other machines, and there is neither TLS nor authentication: "+
			"any client that reaches it may read, publish and delete everything; listen on 127.0.0.1, or add --insecure if the network itself keeps others out", c.Listen)
	}
	for _, name := range c.HostNames {
		if !isHost(name) {
			return core.Errorf(core.CodeBadArgument, "host-names has %q, which is no name of a host; write names without a port, like columba.example", name)
		}
	}
	if c.Advertise == "" {
		if unspecified(host) {
			return core.Errorf(core.CodeBadArgument, "listen %s is every address of this machine; say with --advertise HOST:PORT which one others shall use", c.Listen)
		}
		return nil
	}
	host, err = splitAddress("advertise", c.Advertise)
	if err == nil && unspecified(host) {
		return core.Errorf(core.CodeBadArgument, "advertise %s is no address that others can reach; name one, like 10.0.0.7:4922", c.Advertise)
	}
	return err
}

// splitAddress returns the host of a host:port. The example of its error has the default port of the field: a service
// port in --join ends the process.
func splitAddress(field, addr string) (host string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		example := "127.0.0.1:4922"
		if field == "join" || field == "gossip" {
			example = "127.0.0.1:5922"
		}
		return "", core.Errorf(core.CodeBadArgument, "%s %q is not host:port; write it like %s", field, addr, example)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", core.Errorf(core.CodeBadArgument, "%s %q has a port that is not in 0 … 65535", field, addr)
	}
	if host != "" && !isHost(host) {
		return "", core.Errorf(core.CodeBadArgument, "%s %q does not name a host; write its name or its IP address before the port", field, addr)
	}
	return host, nil
}

// isHost reports whether a text can be the name or the IP address of a host. Hosts make URLs of each other's addresses,
// and the ready line has one: with another character they would be no URL, or another line.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	})
}

// loopback reports whether only this machine reaches a host. Names other than localhost count as reachable.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// unspecified reports whether a host means every address of the machine.
func unspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}
