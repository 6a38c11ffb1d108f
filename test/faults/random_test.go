package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// TestRandomKillsUnderLoad kills a server with all roles at random moments while publishers publish and consumers ack,
// nack, reject and forget. COLUMBA_FAULTS=10m makes it go on for that long, with a server under the race detector.
func TestRandomKillsUnderLoad(t *testing.T) {
	waits(t)
	lasting, program := 4*time.Second, process.Program
	if s := os.Getenv("COLUMBA_FAULTS"); s != "" {
		var err error
		if lasting, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(t.TempDir(), "columba-race")
		if err := process.Build(program, "-race"); err != nil {
			t.Fatal(err)
		}
	}
	l := newLoad(t, process.StartProgram(t, program), 1500)
	l.start(3, 2)
	for over := time.After(lasting); ; {
		select {
		case <-time.After(time.Duration(300+l.random(2500)) * time.Millisecond):
			l.crash()
			continue
		case <-over:
		}
		break
	}
	l.finish()
	if strings.Contains(l.server.Log(), "DATA RACE") {
		t.Error("the race detector found something in the server")
	}
	l.row("one server killed at random", "")
}
