package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// attack does something to the server at addr until ctx ends, and has ended it all when it returns.
type attack func(ctx context.Context, addr string)

// attacks make the attacks by their name. The bytes of an attack are made before it begins.
var attacks = map[string]func() attack{
	"GzipBombs": gzipBombs, "ElementBombs": elementBombs, "ElementBombsOfOtherCase": elementBombsOfOtherCase, "StalledBodies": stalledBodies, "SmallStalledBodies": smallStalledBodies,
	"StalledCalls": stalledCalls, "ManyPulls": manyPulls, "SlowReaders": slowReaders,
	"HellosOfConsumers": hellosOfConsumers, "HellosOfPublishers": hellosOfPublishers, "HellosOfReaders": hellosOfReaders,
	"StalledMessages": stalledMessages, "Pings": pings, "EmptyFragments": emptyFragments, "EmptyMessages": emptyMessages,
}

// attackVariable names the attack in a process that is an attacker.
const attackVariable = "COLUMBA_TEST_ATTACK"

// attacker is a process of its own with one processor: an attack that is costly for the attacker must not look like one
// that is for the server, and the other processors are left to the server and the other client.
type attacker struct {
	t    *testing.T
	to   io.WriteCloser
	from *bufio.Reader
}

func startAttacker(t *testing.T, name string) *attacker {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), attackVariable+"="+name, "GOMAXPROCS=1", "GOGC=400")
	cmd.Stderr = os.Stderr
	a := &attacker{t: t}
	if a.to, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.from = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.to.Close()
		kill := time.AfterFunc(process.Patience, func() { cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the attacker: %v", err)
		}
	})
	a.expect("ready")
	return a
}

// begin attacks a server, until end.
func (a *attacker) begin(addr string) {
	a.t.Helper()
	a.say(addr)
	a.expect("begun")
}

// end ends the attack.
func (a *attacker) end() {
	a.t.Helper()
	a.say("")
	a.expect("ended")
}

func (a *attacker) say(line string) {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.to, line); err != nil {
		a.t.Fatalf("the attacker is gone: %v", err)
	}
}

func (a *attacker) expect(want string) {
	a.t.Helper()
	got, err := a.from.ReadString('\n')
	if err != nil || got != want+"\n" {
		a.t.Fatalf("the attacker says %q (%v), want %q", got, err, want)
	}
}

// serveAttack is the main function of an attacker. Each address that it reads is attacked until the next line comes.
func serveAttack(name string) {
	a := attacks[name]()
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a(ctx, in.Text())
		}()
		fmt.Println("begun")
		in.Scan()
		cancel()
		<-done
		fmt.Println("ended")
	}
}
