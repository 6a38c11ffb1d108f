package cassandra

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
)

// Without Java tests are skipped, unless Cassandra is required.
func TestNodes_WithoutJava(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	t.Setenv("JAVA", "no-such-java")
	t.Setenv(jarsEnv, t.TempDir())
	t.Setenv(requiredEnv, "")
	var n Nodes
	skipped := false
	t.Run("asks", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		n.Address(t)
	})
	if !skipped || !errors.Is(n.err, errMissing) {
		t.Errorf("skipped %v, %v; want a test that is skipped because a tool is missing", skipped, n.err)
	}
}

func TestProcess_Ends(t *testing.T) {
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p, err := spawn("sleep", "600")
		if err != nil {
			t.Skip("no sleep here: ", err)
		}
		p.end(how)
		p.end(how) // it has ended already
	}
	if _, err := spawn("no-such-program"); err == nil {
		t.Error("a program that is not there was started")
	}
}
