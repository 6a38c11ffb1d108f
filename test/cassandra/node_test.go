package cassandra

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Without Java, or if Maven fails, tests are skipped, unless Cassandra is required.
func TestNodes_NoCassandra(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	stubs := t.TempDir()
	if err := os.WriteFile(filepath.Join(stubs, "mvn"), []byte("#!"+bash+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, java := range map[string]string{"no Java": "no-such-java", "Maven fails": bash} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", stubs+string(os.PathListSeparator)+os.Getenv("PATH"))
			t.Setenv("JAVA", java)
			t.Setenv(jarsEnv, t.TempDir())
			t.Setenv(wantedEnv, "")
			var n Nodes
			defer n.close()
			skipped := false
			t.Run("asks", func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				n.Start(t)
			})
			if !skipped || !errors.Is(n.err, errMissing) {
				t.Errorf("skipped %v, %v; want a test that is skipped", skipped, n.err)
			}
		})
	}
}

// The first installation leaves the jars that Maven got, and nothing else.
func TestScript_Installs(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	stubs, jars, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "cassandra.sh")
	mvn := "#!" + bash + "\nfor a; do case $a in -DoutputDirectory=*) mkdir -p \"${a#*=}\" && touch \"${a#*=}/one.jar\";; esac; done\n"
	for path, text := range map[string]string{filepath.Join(stubs, "mvn"): mvn, file: string(script)} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", stubs+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("JAVA", bash)
	for range 2 { // the second time there is nothing to do
		if err := run(time.Minute, file, "install", jars); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(jars, "lib", "one.jar")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(jars); err != nil || len(left) != 1 {
		t.Errorf("%v, %v are left; want lib alone", left, err)
	}
}

// A process ends when it is asked to, also when it is paused, and however often it is asked.
func TestProcess_Ends(t *testing.T) {
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, before := range []syscall.Signal{syscall.SIGCONT, syscall.SIGSTOP} {
			p, err := spawn("sleep", "600")
			if err != nil {
				t.Fatal(err)
			}
			p.signal(before)
			p.end(how)
			p.end(how) // it has ended already
			p.signal(before)
		}
	}
	if _, err := spawn("no-such-program"); err == nil {
		t.Error("a program that is not there was started")
	}
}

// Nodes of a cluster have addresses of their own, and one port.
func TestNodes_Place(t *testing.T) {
	var n Nodes
	all, err := n.place(3)
	if err != nil {
		t.Fatal(err)
	}
	ips := map[string]bool{}
	for _, node := range all {
		ips[node.ip] = true
		if node.port != all[0].port {
			t.Errorf("%s has port %s, another one %s", node.name, node.port, all[0].port)
		}
	}
	if len(ips) != 3 {
		t.Errorf("addresses %v; want three", ips)
	}
}

func TestNodes_BadCount(t *testing.T) {
	t.Setenv(countEnv, "2")
	t.Setenv(wantedEnv, "")
	if err := new(Nodes).start(); err == nil {
		t.Errorf("two nodes were started")
	}
}
