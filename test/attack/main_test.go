// Package attack owns attacks of one anonymous client on a real server. The server lives, keeps to its memory, and
// serves others as before. Attacks on streams of frames belong here, too.
package attack

import (
	"os"
	"testing"

	"github.com/columbamq/columba/test/process"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(attackVariable); name != "" {
		serveAttack(name)
		return
	}
	os.Setenv("GOGC", "100") // of the servers: `make test` lets heaps grow to four times as much, and here their size is judged
	os.Exit(process.Main(m))
}
