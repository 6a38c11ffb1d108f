package gossip

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// bomb is a message of memberlist that says that it is compressed, and unpacks to size zeros.
func bomb(t *testing.T, size int) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.LSB, 8)
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := append([]byte{compressMsg, 0x82, 0xa4}, "Algo\x00\xa3Buf\xda"...) // a map of two in MessagePack
	b = binary.BigEndian.AppendUint16(b, uint16(packed.Len()))
	return append(b, packed.Bytes()...)
}

// answer sends a stream to a gossip address, and returns the answer.
func answer(t *testing.T, address string, stream []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(stream) // no error: the other side may have closed it
	text, _ := io.ReadAll(conn)
	return text
}

// A stream of 31 KiB would become 39 MiB. A stream of a type that no member sends is closed unread.
func TestTransport_RefusesStreamsThatNoMemberSends(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	for what, stream := range map[string][]byte{
		"compressed":   bomb(t, 39<<20),
		"encrypted":    {10, 0, 0, 0, 1},
		"user message": append([]byte{8, 0x81, 0xaa}, "UserMsgLen\xce\x01\x40\x00\x00"...), // 20 MiB to come
		"label":        {244, 1, 'x', compressMsg},
	} {
		if got := answer(t, a.Address(), stream); len(got) != 0 {
			t.Errorf("%s stream: memberlist answered %q, want that it never saw the stream", what, got)
		}
	}
	quiet := start(t, host("quiet"), nil)
	if got := answer(t, quiet.Address(), []byte("GET /readyz HTTP/1.1\r\n\r\n")); len(got) != 0 || quiet.log.has("is refused") {
		t.Errorf("by HTTP: answered %q, and the log says\n%s", got, quiet.log.text.String())
	}
	if !a.log.has("gossip: a stream is refused") {
		t.Errorf("the log does not say that streams were refused:\n%s", a.log.text.String())
	}
	b := start(t, host("b"), []string{a.Address()})
	b.awaitIDs("a", "b")
}

// A member that is dialled may be anybody, too.
func TestTransport_RefusesCompressedAnswers(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	packed := bomb(t, 39<<20)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write(packed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	if _, err := a.agent.Join([]string{l.Addr().String()}, true); !errors.Is(err, errStreamType) && (err == nil || !bytes.Contains([]byte(err.Error()), []byte(errStreamType.Error()))) {
		t.Errorf("join through an address that answers compressed: %v, want %v", err, errStreamType)
	}
}

// TestTransport_StreamsAreBounded opens as many streams as there may be, and then one more.
func TestTransport_StreamsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 8
	a := start(t, host("a"), nil, func(m *Monitor) { m.cfg.Streams = most })
	fromOne := most * 3 / 4
	var open []net.Conn
	for range fromOne {
		conn, err := net.Dial("tcp", a.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	eventually(t, "all streams open", func() bool { return a.transport.streamsOpen() == fromOne })
	begin := time.Now()
	if got := answer(t, a.Address(), nil); len(got) != 0 || time.Since(begin) >= dialTimeout {
		t.Errorf("stream above the bound: %q after %s, want that it is closed at once", got, time.Since(begin))
	}
	if n := a.transport.streamsOpen(); n > fromOne {
		t.Errorf("%d streams are open from one address, want at most %d", n, fromOne)
	}
	quiet := start(t, host("quiet"), nil)
	if got := answer(t, quiet.Address(), []byte("GET /readyz HTTP/1.1\r\n\r\n")); len(got) != 0 || quiet.log.has("is refused") {
		t.Errorf("by HTTP: answered %q, and the log says\n%s", got, quiet.log.text.String())
	}
	if !a.log.has("gossip: a stream is refused") {
		t.Errorf("the log does not say that a stream was refused:\n%s", a.log.text.String())
	}
	for _, c := range open {
		c.Close()
	}
	eventually(t, "no stream open", func() bool { return a.transport.streamsOpen() == 0 })
	b := start(t, host("b"), []string{a.Address()})
	b.awaitIDs("a", "b")
}

func TestSlots_Bounds(t *testing.T) {
	s := newSlots(4)
	for i, tc := range []struct {
		host string
		want string
	}{{"a", ""}, {"a", ""}, {"a", ""}, {"a", "address"}, {"b", ""}, {"c", "all"}, {"a", "all"}} {
		if got := s.enter(tc.host); got != tc.want {
			t.Errorf("stream %d from %s: got %q, want %q", i, tc.host, got, tc.want)
		}
	}
	s.leave("a")
	if got := s.enter("b"); got != "" {
		t.Errorf("stream after another one ended: %q", got)
	}
	for _, h := range []string{"a", "a", "b", "b"} {
		s.leave(h)
	}
	if s.open != 0 || len(s.byHost) != 0 {
		t.Errorf("all streams ended: %d are open, of %v", s.open, s.byHost)
	}
}

func TestCompressed(t *testing.T) {
	compound := func(parts ...[]byte) []byte {
		b := []byte{compoundMsg, byte(len(parts))}
		for _, p := range parts {
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	crc := func(p []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{hasCrcMsg}, crc32.ChecksumIEEE(p)), p...)
	}
	plain, packed := []byte{pingMsg, 0x80}, bomb(t, 1000)
	for what, tc := range map[string]struct {
		packet []byte
		want   bool
	}{
		"empty":                 {nil, false},
		"plain":                 {plain, false},
		"plain with a checksum": {crc(plain), false},
		"checksum without more": {[]byte{hasCrcMsg, 0, 0}, false},
		"compressed":            {packed, true},
		"compressed, checksum":  {crc(packed), true},
		"compound":              {compound(plain, plain), false},
		"compound, no lengths":  {[]byte{compoundMsg, 3, 0}, false},
		"compound, cut":         {compound(plain, plain)[:7], false},
		"compound of none":      {[]byte{compoundMsg}, false},
		"compressed second":     {crc(compound(plain, packed)), true},
		"compound twice":        {compound(plain, compound(plain)), true},
	} {
		if got := compressed(tc.packet); got != tc.want {
			t.Errorf("%s: got %v, want %v", what, got, tc.want)
		}
	}
}

// A compressed packet never reaches memberlist: it would pass on what it unpacks to the next members.
func TestTransport_DropsCompressedPackets(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	conn, err := net.Dial("udp", a.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "a packet dropped", func() bool {
		if _, err := conn.Write(bomb(t, 39<<20)); err != nil {
			t.Fatal(err)
		}
		return a.log.has("gossip: a packet is dropped")
	})
	b := start(t, host("b"), []string{a.Address()})
	b.awaitIDs("a", "b")
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)
