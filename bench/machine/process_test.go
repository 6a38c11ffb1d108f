package machine

import (
	"strconv"
	"strings"
	"testing"
)

func TestFreePorts(t *testing.T) {
	const n = 20
	addrs, err := FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, addr := range addrs {
		port, err := strconv.Atoi(strings.TrimPrefix(addr, "127.0.0.1:"))
		if err != nil || port < lowestPort || port >= lowestPort+portRange || seen[addr] {
			t.Errorf("%s is not a port of its own in the range: %v", addr, err)
		}
		seen[addr] = true
	}
	if len(addrs) != n {
		t.Fatalf("%d addresses, want %d", len(addrs), n)
	}
}
