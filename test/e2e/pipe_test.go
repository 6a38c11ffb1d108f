package e2e

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// TestOneServer_ConsumeIntoAPipeThatIsClosed reads one line of `columba consume`, as head -1 does: what was not to be
// printed is given back, and not locked until the lock timeout is over.
func TestOneServer_ConsumeIntoAPipeThatIsClosed(t *testing.T) {
	const published = 20_000
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g", "--start", "earliest", "--lock-timeout", "10m")
	s.Must(strings.Repeat(strings.Repeat("x", 100)+"\n", published), "publish", "/t/a")
	cmd := s.command("consume", "/t/a", "g", "--prefetch", "10000")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Errorf("no line: %v", err)
	}
	out.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(talk.String(), "the output is not read any more") {
		t.Errorf("exit code %d (%s), stderr %q", code, cmd.ProcessState, talk.String())
	}
	type depth struct {
		Ready    int
		InFlight int `json:"in_flight"`
	}
	d := process.Decode[depth](t, s.Must("", "depth", "/t/a", "g", "-o", "json"))[0]
	const read = 4096/101 + 2 // lines: the size of the reader's buffer
	if d.InFlight != 0 || d.Ready < published-read {
		t.Errorf("depth %+v at once after the end, want at least %d ready", d, published-read)
	}
}
