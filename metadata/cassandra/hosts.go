package cassandra

import "github.com/gocql/gocql"

// localFirst picks the local node first, and the others in turn while it is away or after it failed.
type localFirst struct {
	gocql.HostSelectionPolicy        // the others in turn
	local                     string // "host:port", "" = none
}

func newLocalFirst(local string) gocql.HostSelectionPolicy {
	return localFirst{gocql.RoundRobinHostPolicy(), local}
}

// IsLocal implements gocql.HostSelectionPolicy.
func (p localFirst) IsLocal(host *gocql.HostInfo) bool { return p.local == "" || p.is(host) }

// is reports whether host is the local node, by its address or its name.
func (p localFirst) is(host *gocql.HostInfo) bool {
	return p.local == host.ConnectAddressAndPort() || p.local == host.HostnameAndPort()
}

// Pick implements gocql.HostSelectionPolicy: all nodes once, the local one first.
func (p localFirst) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	inner := p.HostSelectionPolicy.Pick(q)
	if p.local == "" {
		return inner
	}
	var order []gocql.SelectedHost
	for h := inner(); h != nil; h = inner() {
		if info := h.Info(); info != nil && p.is(info) {
			order = append([]gocql.SelectedHost{h}, order...)
			continue
		}
		order = append(order, h)
	}
	return func() gocql.SelectedHost {
		if len(order) == 0 {
			return nil
		}
		h := order[0]
		order = order[1:]
		return h
	}
}
