package cassandra

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// Config says which keyspace a Store uses and how it reaches Cassandra.
type Config struct {
	// Local is the address of the node that is asked first, "host:port". The others are asked while it is away or does
	// not answer. Empty: all nodes in turn.
	Local string
	// Hosts are the addresses of some nodes, "host:port"; the others are found through them. All have the same port.
	Hosts []string
	// Keyspace holds the rows: a letter, then letters, digits and underscores. Default "columba".
	Keyspace string
	// Replication is used when Apply creates the keyspace: replicas in each data centre, by its name. Empty: Replicas in
	// the one data centre of the cluster, or in that of Local.
	Replication map[string]int
	// Replicas is used where Replication is empty. 0: three, or one if the data centre has fewer nodes.
	Replicas int
	// Username and Password, if the cluster asks for them.
	Username, Password string
	// TLS, if the cluster asks for it. ServerName must be set unless each certificate names the address of its node, since
	// most nodes are found by their addresses.
	TLS *tls.Config
	// Connect limits the time to connect to a node. Default 2 s.
	Connect time.Duration
	// Request limits the time of one request to one node. It must be above the nodes' own timeouts. Default 3 s.
	Request time.Duration
	// Poll is the longest time between two looks of a watch for changes by other processes. Default 2 s.
	Poll time.Duration
	// Log, nil for none.
	Log *slog.Logger

	members *members // told by connect of the nodes, unless nil
}

const schemaTimeout = 30 * time.Second // of one change of the schema

// keyspaceName: the name goes into CQL as it is.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// withDefaults returns the configuration to work with; CodeBadArgument.
func (c Config) withDefaults() (Config, error) {
	c.Keyspace = cmp.Or(c.Keyspace, "columba")
	c.Connect = cmp.Or(c.Connect, 2*time.Second)
	c.Request = cmp.Or(c.Request, 3*time.Second)
	c.Poll = cmp.Or(c.Poll, 2*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if !keyspaceName.MatchString(c.Keyspace) {
		return c, core.Errorf(core.CodeBadArgument, "keyspace %q is not a name of small letters, digits and underscores", c.Keyspace)
	}
	if c.Connect < 0 || c.Request < 0 || c.Poll < 0 {
		return c, core.Errorf(core.CodeBadArgument, "a timeout for Cassandra is negative")
	}
	if c.Local != "" && !slices.Contains(c.Hosts, c.Local) {
		c.Hosts = append([]string{c.Local}, c.Hosts...)
	}
	if len(c.Hosts) == 0 {
		return c, core.Errorf(core.CodeBadArgument, "no address of a Cassandra node is given")
	}
	port := ""
	for _, host := range c.Hosts {
		_, p, err := net.SplitHostPort(host)
		if err != nil {
			return c, core.Errorf(core.CodeBadArgument, "address of a Cassandra node: %w", err)
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return c, core.Errorf(core.CodeBadArgument, "address %s of a Cassandra node has no port between 1 and 65535", host)
		}
		if port != "" && p != port {
			return c, core.Errorf(core.CodeBadArgument, "Cassandra nodes have ports %s and %s; all need the same", port, p)
		}
		port = p
	}
	return c, nil
}

// connect opens a session. Errors: CodeUnavailable when no node answers, CodeBadArgument when they refuse the user, or
// disagree about TLS. Retries, timestamps and consistency are each statement's
// own, and statements name their keyspace.
func (c Config) connect(request time.Duration) (*gocql.Session, error) {
	return c.connectBy(newLocalFirst(c.Local), request)
}

// connectBy is connect with a policy that picks the node of each request.
func (c Config) connectBy(policy gocql.HostSelectionPolicy, request time.Duration) (*gocql.Session, error) {
	cluster := gocql.NewCluster(c.Hosts...)
	_, port, err := net.SplitHostPort(c.Hosts[0])
	if err != nil {
		return nil, core.Errorf(core.CodeBadArgument, "address of a Cassandra node: %w", err)
	}
	if cluster.Port, err = strconv.Atoi(port); err != nil {
		return nil, core.Errorf(core.CodeBadArgument, "port of a Cassandra node: %w", err)
	}
	cluster.ConnectTimeout = c.Connect
	cluster.Timeout = request
	cluster.Consistency = gocql.Quorum
	cluster.SerialConsistency = gocql.Serial
	cluster.DefaultTimestamp = false
	cluster.DefaultIdempotence = false
	cluster.WriteCoalesceWaitTime = 0
	cluster.ReconnectInterval = 2 * time.Second
	cluster.MaxWaitSchemaAgreement = schemaTimeout
	cluster.Logger = driverLog{c.Log}
	cluster.PoolConfig.HostSelectionPolicy = policy
	if c.members != nil {
		cluster.PoolConfig.HostSelectionPolicy = counting{policy, c.members}
	}
	if c.Username != "" {
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: c.Username, Password: c.Password}
	}
	refused := &refusals{dialer: dialer{c.TLS, c.Connect}, last: map[string]error{}}
	cluster.HostDialer, cluster.ConnectObserver = refused.dialer, refused
	session, err := cluster.CreateSession()
	if err != nil {
		if advice, why := refused.reason(); why != nil {
			return nil, core.Errorf(core.CodeBadArgument, "connect to Cassandra at %s: %w; %s", strings.Join(c.Hosts, ", "), why, advice)
		}
		return nil, core.Errorf(core.CodeUnavailable, "connect to Cassandra at %s: %w; check the addresses, and that the nodes are up", strings.Join(c.Hosts, ", "), err)
	}
	return session, nil
}

// driverLog passes what the driver says to the log of the process.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug(strings.TrimSpace(fmt.Sprint(v...))) }
func (l driverLog) Printf(format string, v ...any) {
	l.log.Debug(strings.TrimSpace(fmt.Sprintf(format, v...)))
}
func (l driverLog) Println(v ...any) { l.log.Debug(strings.TrimSpace(fmt.Sprintln(v...))) }
