package process

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort is a port that nobody listens on, neither by TCP nor by UDP. It is below those that systems give to outgoing connections,
// so that none of them takes it while its server is down.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(20000)
		addr := "127.0.0.1:" + strconv.Itoa(port)
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", addr)
		if err == nil {
			err = udp.Close()
		}
		if cerr := tcp.Close(); err == nil && cerr == nil {
			return port
		}
	}
	t.Fatal("no free port found")
	return 0
}
