package cassandra

import (
	"context"
	"strconv"
	"sync"

	"github.com/gocql/gocql"
)

// members are the nodes of the cluster as the driver knows them, whether they are up or not.
type members struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (m *members) set(id string, there bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil {
		m.ids = map[string]bool{}
	}
	if there {
		m.ids[id] = true
	} else {
		delete(m.ids, id)
	}
}

func (m *members) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ids)
}

// counting is a policy that also keeps the members. A node that goes down stays one.
type counting struct {
	gocql.HostSelectionPolicy
	members *members
}

// AddHost implements gocql.HostSelectionPolicy.
func (c counting) AddHost(host *gocql.HostInfo) {
	c.members.set(host.HostID(), true)
	c.HostSelectionPolicy.AddHost(host)
}

// RemoveHost implements gocql.HostSelectionPolicy.
func (c counting) RemoveHost(host *gocql.HostInfo) {
	c.members.set(host.HostID(), false)
	c.HostSelectionPolicy.RemoveHost(host)
}

// replicas reads how many replicas a keyspace has of each row.
func replicas(ctx context.Context, session *gocql.Session, keyspace string) (int, error) {
	options, err := keyspaceReplication(ctx, session, keyspace)
	if err != nil {
		return 0, err
	}
	return sumReplicas(options), nil
}

// sumReplicas adds the replicas of all data centres; 0 when the options are none that this version knows.
func sumReplicas(options map[string]string) (sum int) {
	for name, value := range options {
		if name == "class" {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0
		}
		sum += n
	}
	return sum
}
