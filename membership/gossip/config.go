package gossip

import (
	"context"
	"log"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/serf/serf"

	"github.com/columbamq/columba/core"
)

// Times of failure detection, for one machine room. A host that dies is probed within about probeEvery, suspected after
// a probe, and gone suspicion later: 1.5 to 2 s after its death. A host that only pauses has suspicion, 1.2 s, to say
// that it lives. The suspicion grows with the logarithm of the number of hosts from 10 on.
const (
	probeEvery    = 200 * time.Millisecond
	probeTimeout  = 150 * time.Millisecond
	suspicionMult = 6 // × probeEvery
	gossipEvery   = 50 * time.Millisecond
	pushPullEvery = 10 * time.Second // both sides exchange all they know

	// retransmitMult is how often a host sends a piece of news, × the number of digits of the number of members. Each run
	// of a host is a member of its own for 30 s after its end, so most of what is sent after some restarts reaches the
	// address that restarted. With the default of 4 a third host missed the news of one restart in ten.
	retransmitMult = 16

	dialTimeout = 2 * time.Second
)

// Times of those who are gone.
const (
	reconnectEvery = 5 * time.Second // one of them is tried
	forgetFailed   = 24 * time.Hour
	forgetLeft     = time.Hour
)

// Bounds of a leave: until the others were told, and until they told each other.
const (
	leaveTimeout   = time.Second
	leavePropagate = 300 * time.Millisecond
)

// levelEvery is how often the view is compared with serf's, events or not.
const levelEvery = time.Second

// doubleGrace is how long two live runs of one host may be seen before that is logged: one of them may have crashed a
// moment ago.
const doubleGrace = 10 * time.Second

// healthMax bounds how much slower a host probes that finds itself slow, as a factor.
const healthMax = 4

func (m *Monitor) serfConfig(logger *log.Logger) *serf.Config {
	c := serf.DefaultConfig()
	c.NodeName = m.name
	c.Tags = tags(m.cfg.Self, m.cfg.Cluster)
	c.EventCh = m.events
	c.Logger, c.LogOutput = logger, nil
	c.ReconnectInterval, c.ReconnectTimeout = m.reconnectEvery, forgetFailed
	c.TombstoneTimeout = forgetLeft
	c.BroadcastTimeout, c.LeavePropagateDelay = leaveTimeout, leavePropagate
	c.EnableNameConflictResolution = false // names hold the run: no two are equal
	c.DisableCoordinates = true
	l := c.MemberlistConfig
	l.Name = m.name
	l.Logger, l.LogOutput = logger, nil
	l.ProbeInterval, l.ProbeTimeout = probeEvery, probeTimeout
	l.SuspicionMult, l.SuspicionMaxTimeoutMult = suspicionMult, 1
	l.AwarenessMaxMultiplier = healthMax
	l.GossipInterval, l.PushPullInterval = gossipEvery, pushPullEvery
	l.RetransmitMult = retransmitMult
	l.TCPTimeout = dialTimeout
	l.EnableCompression = false
	return c
}

// resolve is the IP and port of a host:port.
func resolve(ctx context.Context, addr string) (net.IP, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, 0, core.Errorf(core.CodeBadArgument, "gossip address %q is not host:port", addr)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, 0, core.Errorf(core.CodeBadArgument, "gossip address %q has a port that is not in 0 … 65535", addr)
	}
	if host == "" {
		return net.IPv4zero, int(port), nil
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip, int(port), nil
	}
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil {
		return nil, 0, core.Errorf(core.CodeBadArgument, "gossip address %s: %w", addr, err)
	}
	for _, ip := range ips {
		if ip.To4() != nil {
			return ip, int(port), nil
		}
	}
	return ips[0], int(port), nil
}

// bridge passes the log lines of serf and memberlist to slog. The Monitor logs the important events itself, so these
// lines have lower levels here. Any packet may cause an error's line.
type bridge struct {
	log     *slog.Logger
	limited *slog.Logger
}

func (m *Monitor) bridge() bridge { return bridge{log: m.cfg.Log, limited: m.limited} }

func (b bridge) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if rest, ok := strings.CutPrefix(text, "[ERR] "); ok {
		b.limited.Info("gossip", "text", rest)
	} else {
		b.log.Debug("gossip", "text", text)
	}
	return len(line), nil
}
