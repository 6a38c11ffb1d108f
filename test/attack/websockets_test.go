package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// stallTime is a turn in which all stalled messages arrive, and in which the server ends the first of them.
const stallTime = 8 * time.Second

func TestAttack_StalledMessages(t *testing.T) { attackIn(t, "StalledMessages", 1, stallTime) }

func TestAttack_Pings(t *testing.T) { withstand(t, "Pings") }

func TestAttack_EmptyFragments(t *testing.T) { withstand(t, "EmptyFragments") }

func TestAttack_EmptyMessages(t *testing.T) { withstand(t, "EmptyMessages") }

// websocket is a connection without a library: an attacker sends what no library does.
func websocket(ctx context.Context, addr, path string) (net.Conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil && res.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("%s answers %s", path, res.Status)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// stalledMessages has many connections send all but the end of a large message, and then a byte now and then.
func stalledMessages() attack {
	part := make([]byte, 64<<10)
	return func(ctx context.Context, addr string) {
		var wg sync.WaitGroup
		for _, kind := range []struct {
			path        string
			connections int
			size        int
		}{{"/v1/publish", 40, 15_900 << 10}, {"/v1/store", 30, 17_000 << 10}, {"/v1/consume", 600, 950 << 10}} {
			for range kind.connections {
				wg.Go(func() {
					c, err := websocket(ctx, addr, kind.path)
					if err != nil {
						return
					}
					defer c.Close()
					defer context.AfterFunc(ctx, func() { c.Close() })()
					c.(*net.TCPConn).SetWriteBuffer(64 << 10) // of the machine's memory, not of the server's
					c.Write(append(binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, uint64(kind.size)), 0, 0, 0, 0))
					for sent := 0; sent+len(part) < kind.size; sent += len(part) {
						if _, err := c.Write(part); err != nil {
							return
						}
					}
					for _, err := c.Write(part[:1]); err == nil && ctx.Err() == nil; _, err = c.Write(part[:1]) {
						pause(ctx, 2*time.Second)
					}
				})
			}
		}
		wg.Wait()
	}
}

func pings() attack {
	ping := append([]byte{0x89, 0xfd, 0, 0, 0, 0}, make([]byte, 125)...)
	return floodOfFrames(200, nil, bytes.Repeat(ping, 500))
}

// emptyFragments are one message that never ends and never grows.
func emptyFragments() attack {
	return floodOfFrames(100, []byte{0x02, 0x80, 0, 0, 0, 0}, bytes.Repeat([]byte{0x00, 0x80, 0, 0, 0, 0}, 10_000))
}

func emptyMessages() attack {
	return floodOfFrames(100, nil, bytes.Repeat([]byte{0x82, 0x80, 0, 0, 0, 0}, 10_000))
}

// floodOfFrames sends frames on many connections as fast as the server takes them, reads nothing, and connects again
// when a connection ends.
func floodOfFrames(connections int, first, next []byte) attack {
	return func(ctx context.Context, addr string) {
		var wg sync.WaitGroup
		for i := range connections {
			wg.Go(func() {
				for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
					c, err := websocket(ctx, addr, []string{"/v1/publish", "/v1/consume", "/v1/store"}[i%3])
					if err != nil {
						continue
					}
					stop := context.AfterFunc(ctx, func() { c.Close() })
					for _, err := c.Write(first); err == nil; _, err = c.Write(next) {
					}
					stop()
					c.Close()
				}
			})
		}
		wg.Wait()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
