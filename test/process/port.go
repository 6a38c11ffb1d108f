package process

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports that are given out are below those that systems give to outgoing connections, so that none of them takes one
// while its server is down. The holder of a port listens on the port that is claimAt higher. So no other test or
// process takes the port until the holder's server has it.
const (
	lowestPort = 10000
	claimAt    = 10000
)

// FreePort is a port that nobody listens on, neither by TCP nor by UDP, and that nobody else is given until the test
// ends.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1, 0)
}

// FreePorts is the first of count such ports in a row, and of those that are higher by offset.
func FreePorts(t testing.TB, count, offset int) int {
	t.Helper()
	for range 100 {
		first := lowestPort + rand.IntN(claimAt-offset-count)
		if release, err := claim(first, count, offset); err == nil {
			t.Cleanup(release)
			return first
		}
	}
	t.Fatal("no free port found")
	return 0
}

// FreeAddr is the address of a FreePort.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return address(FreePort(t))
}

// claim takes ports until release is called. It fails if one of them is not free.
func claim(first, count, offset int) (release func(), err error) {
	var claims []net.Listener
	release = func() {
		for _, l := range claims {
			l.Close()
		}
	}
	ports := make([]int, 0, 2*count)
	for i := range count {
		ports = append(ports, first+i)
		if offset != 0 {
			ports = append(ports, first+i+offset)
		}
	}
	for _, port := range ports {
		l, err := net.Listen("tcp", address(port+claimAt))
		if err == nil {
			claims = append(claims, l)
			err = free(port)
		}
		if err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// free fails if somebody listens on the port.
func free(port int) error {
	tcp, err := net.Listen("tcp", address(port))
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", address(port))
	if err == nil {
		err = udp.Close()
	}
	return errors.Join(err, tcp.Close())
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
