package gossip

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/columbamq/columba/internal/telemetry"
)

// Types of memberlist's messages: the first byte of each packet and stream. The library does not export them.
const (
	pingMsg     = 0
	ackRespMsg  = 2
	pushPullMsg = 6
	compoundMsg = 7
	compressMsg = 9
	hasCrcMsg   = 12
	errMsg      = 13

	httpGet = 'G' // of no message: the begin of a question by HTTP
)

// The types with which a stream of this build begins. Every other type is refused: memberlist would unpack the 31 KiB
// of a compressed stream to 39 MiB, without a bound on how many at once, whatever EnableCompression says.
var (
	requestTypes = []byte{pingMsg, pushPullMsg}            // on streams that others open
	answerTypes  = []byte{ackRespMsg, pushPullMsg, errMsg} // on streams that this host opens
)

// Bounds of the streams that others have open at once. A stream lasts for milliseconds, and at most about twice
// dialTimeout. One that is refused is no loss: the other side tries again.
const (
	mostStreams    = 32
	addressStreams = 3.0 / 4 // the part of them that one address may have; many hosts may share it
)

var errStreamType = errors.New("the stream begins with a type that no member sends")

// transport is the network of memberlist. It refuses compressed messages, and bounds the streams that others have open.
//
// Packets have no bound of their own. NetTransport reads one at a time, and it has at most 64 KiB. Memberlist keeps at
// most twice HandoffQueueDepth of them, or 128 MiB, until it has handled them.
type transport struct {
	*memberlist.NetTransport
	log     *slog.Logger // limited by source
	slots   *slots
	streams chan net.Conn
	packets chan *memberlist.Packet
	closing chan struct{} // closed when Shutdown begins
	drained chan struct{} // closed when NetTransport hands over nothing more
	once    sync.Once
	pumps   sync.WaitGroup
}

// newTransport begins to filter what comes to inner. Shutdown ends both.
func newTransport(inner *memberlist.NetTransport, most int, log *slog.Logger) *transport {
	t := &transport{
		NetTransport: inner, log: log, slots: newSlots(most), streams: make(chan net.Conn), packets: make(chan *memberlist.Packet),
		closing: make(chan struct{}), drained: make(chan struct{}),
	}
	t.pumps.Go(t.pumpStreams)
	t.pumps.Go(t.pumpPackets)
	return t
}

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. The other side may be anybody: any packet can name it.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := t.NetTransport.DialAddressTimeout(a, timeout)
	if err != nil {
		return nil, err
	}
	return &stream{Conn: conn, types: answerTypes, refused: t.refused, closed: func() {}}, nil
}

// Shutdown implements memberlist.Transport. Idempotent.
func (t *transport) Shutdown() (err error) {
	t.once.Do(func() {
		close(t.closing)
		err = t.NetTransport.Shutdown() // its listeners may wait for the pumps
		close(t.drained)
		t.pumps.Wait()
	})
	return err
}

// pumpStreams hands over the streams that may be open.
func (t *transport) pumpStreams() {
	for {
		select {
		case conn := <-t.NetTransport.StreamCh():
			t.admit(conn)
		case <-t.drained:
			return
		}
	}
}

func (t *transport) admit(conn net.Conn) {
	host := addressOf(conn.RemoteAddr())
	if full := t.slots.enter(host); full != "" {
		conn.Close()
		t.log.Warn("gossip: a stream is refused: too many are open; look who opens them", telemetry.KeyPeer, conn.RemoteAddr(), "of", full)
		return
	}
	s := &stream{Conn: conn, types: requestTypes, refused: t.refused, closed: func() { t.slots.leave(host) }}
	select {
	case t.streams <- s:
	case <-t.closing:
		s.Close()
	}
}

// refused tells of a stream that began with a type of no member. Questions by HTTP are usual: a host that joins asks
// whether the address is one that takes clients.
func (t *transport) refused(from net.Addr, kind byte) {
	if kind == httpGet {
		t.log.Debug("gossip: a stream by HTTP is refused", telemetry.KeyPeer, from)
		return
	}
	t.log.Warn("gossip: a stream is refused: no member sends its type; look who sends it", telemetry.KeyPeer, from, "type", kind)
}

// pumpPackets hands over the packets that are not compressed.
func (t *transport) pumpPackets() {
	for {
		select {
		case p := <-t.NetTransport.PacketCh():
			t.passPacket(p)
		case <-t.drained:
			return
		}
	}
}

func (t *transport) passPacket(p *memberlist.Packet) {
	if compressed(p.Buf) {
		t.log.Warn("gossip: a packet is dropped: it is compressed, and no member compresses; look who sends it", telemetry.KeyPeer, p.From)
		return
	}
	select {
	case t.packets <- p:
	case <-t.closing:
	}
}

func (t *transport) streamsOpen() int {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	return t.slots.open
}

// compressed reports whether memberlist would unpack a packet, or a part of it. Serf would keep what comes out in its
// list of events, and pass it on. A part of several parts, which no member sends, counts too: it may hold such a one.
func compressed(packet []byte) bool {
	if len(packet) >= 5 && packet[0] == hasCrcMsg {
		packet = packet[5:]
	}
	if len(packet) < 2 || packet[0] != compoundMsg {
		return len(packet) > 0 && packet[0] == compressMsg
	}
	parts := int(packet[1]) // then their lengths, of 2 bytes each, and the parts
	lengths := packet[2:]
	if len(lengths) < 2*parts {
		return false // memberlist refuses it
	}
	rest := lengths[2*parts:]
	for i := range parts {
		n := int(lengths[2*i])<<8 | int(lengths[2*i+1])
		if n > len(rest) {
			return false // cut off: memberlist handles the parts before
		}
		if n > 0 && (rest[0] == compressMsg || rest[0] == compoundMsg) {
			return true
		}
		rest = rest[n:]
	}
	return false
}

// stream is a connection whose first byte is checked as it is read. Reads are memberlist's, one after another.
type stream struct {
	net.Conn
	types   []byte // it may begin with
	begun   bool
	err     error // of every read after a refusal
	refused func(from net.Addr, kind byte)
	closed  func()
	once    sync.Once
}

// Read implements net.Conn. It fails with errStreamType for good when s.types lack the first byte.
func (s *stream) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.Conn.Read(b)
	if n > 0 && !s.begun {
		s.begun = true
		if !slices.Contains(s.types, b[0]) {
			s.refused(s.RemoteAddr(), b[0])
			s.err = errStreamType
			return 0, s.err
		}
	}
	return n, err
}

// Close implements net.Conn.
func (s *stream) Close() error {
	err := s.Conn.Close()
	s.once.Do(s.closed)
	return err
}

// slots count the open streams. Safe for concurrent use.
type slots struct {
	most, perHost int

	mu     sync.Mutex
	open   int
	byHost map[string]int
}

func newSlots(most int) *slots {
	return &slots{most: most, perHost: max(1, int(float64(most)*addressStreams)), byHost: map[string]int{}}
}

// enter counts a stream unless as many are open as there may be, of all or of its address: full says which.
func (s *slots) enter(host string) (full string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open >= s.most:
		return "all"
	case s.byHost[host] >= s.perHost:
		return "address"
	}
	s.open++
	s.byHost[host]++
	return ""
}

// leave ends a stream that was counted.
func (s *slots) leave(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.byHost[host]--; s.byHost[host] == 0 {
		delete(s.byHost, host)
	}
}

func addressOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
