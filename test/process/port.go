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
	return FreePorts(t, 1, 0)
}

// FreePorts is the first of count ports in a row that are free, as are those that are higher by offset.
func FreePorts(t testing.TB, count, offset int) int {
	t.Helper()
	for range 100 {
		first := 10000 + rand.IntN(20000)
		free := true
		for i := range count {
			free = free && isFree(first+i) && (offset == 0 || isFree(first+i+offset))
		}
		if free {
			return first
		}
	}
	t.Fatal("no free port found")
	return 0
}

func isFree(port int) bool {
	addr := "127.0.0.1:" + strconv.Itoa(port)
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return udp.Close() == nil
}
