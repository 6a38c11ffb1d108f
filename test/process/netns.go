package process

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// Networks are network namespaces on one bridge, in which processes can be cut off from each other. The test itself,
// outside of them, reaches all of them always. Not safe for concurrent use.
type Networks struct {
	t      testing.TB
	bridge string
	names  []string
	net    string // of the addresses, "10.1.2."
}

// NewNetworks makes n namespaces until the test ends. The test is skipped where that cannot be: it needs Linux, root,
// ip and iptables. As root on a machine of continuous integration (CI is set) it installs them.
func NewNetworks(t testing.TB, n int) *Networks {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("SKIPPED: network namespaces need Linux and root; run the tests as root to have partitions tested")
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if os.Getenv("CI") == "" {
			t.Skipf("SKIPPED: no %s; install iproute2 and iptables to have partitions tested", tool)
		}
		install := exec.Command("sh", "-c", "apt-get update && apt-get install -y --no-install-recommends iproute2 iptables")
		if out, err := install.CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: iproute2 and iptables cannot be installed: %v\n%s", err, out)
		}
	}
	id := rand.IntN(1 << 16)
	w := &Networks{t: t, bridge: fmt.Sprintf("cqb%04x", id), net: fmt.Sprintf("10.%d.%d.", 64+id>>8%128, id&255)}
	if out, err := exec.Command("ip", "link", "add", w.bridge, "type", "bridge", "forward_delay", "0").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: this kernel makes no bridge: %v %s", err, out)
	}
	t.Cleanup(w.remove)
	w.ip("addr", "add", w.net+"254/24", "dev", w.bridge)
	w.ip("link", "set", w.bridge, "up")
	for i := range n {
		name, veth := fmt.Sprintf("cqn%04x-%d", id, i), fmt.Sprintf("cqv%04x-%d", id, i)
		w.ip("netns", "add", name)
		w.names = append(w.names, name)
		w.ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
		w.ip("link", "set", veth, "master", w.bridge, "up")
		w.ip("-n", name, "addr", "add", w.addr(i)+"/24", "dev", "eth0")
		w.ip("-n", name, "link", "set", "eth0", "up")
		w.ip("-n", name, "link", "set", "lo", "up")
	}
	return w
}

func (w *Networks) addr(i int) string { return fmt.Sprintf("%s%d", w.net, i+1) }

// Net is where process i is.
func (w *Networks) Net(i int) Net {
	return Net{Host: w.addr(i), Prefix: []string{"ip", "netns", "exec", w.names[i]}}
}

// Drop loses, silently, what any of from sends to any of to; the other way stays open.
func (w *Networks) Drop(from, to []int) {
	w.t.Helper()
	for _, a := range from {
		for _, b := range to {
			w.in(b, "-A", "INPUT", "-s", w.addr(a), "-j", "DROP")
		}
	}
}

// Cut loses everything between a and b.
func (w *Networks) Cut(a, b []int) {
	w.t.Helper()
	w.Drop(a, b)
	w.Drop(b, a)
}

// Reset answers every TCP packet between a and b with a reset, but the resets.
func (w *Networks) Reset(a, b []int) {
	w.t.Helper()
	reset := func(from, to int) {
		w.in(to, "-A", "INPUT", "-p", "tcp", "--tcp-flags", "RST", "NONE", "-s", w.addr(from), "-j", "REJECT", "--reject-with", "tcp-reset")
	}
	for _, i := range a {
		for _, j := range b {
			reset(i, j)
			reset(j, i)
		}
	}
}

// Heal ends all that Drop, Cut and Reset have begun; it returns how many packets they took.
func (w *Networks) Heal() (packets int) {
	w.t.Helper()
	for i := range w.names {
		for line := range strings.Lines(w.in(i, "-L", "INPUT", "-v", "-n", "-x")) {
			var n int
			if _, err := fmt.Sscan(line, &n); err == nil { // a rule's line begins with its count
				packets += n
			}
		}
		w.in(i, "-F", "INPUT")
	}
	return packets
}

func (w *Networks) in(i int, rule ...string) string {
	w.t.Helper()
	return w.ip(append([]string{"netns", "exec", w.names[i], "iptables", "-w"}, rule...)...)
}

func (w *Networks) ip(args ...string) string {
	w.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("ip %s: %v %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// remove takes the namespaces, with the ends of their links, and the bridge away.
func (w *Networks) remove() {
	for _, name := range w.names {
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
			w.t.Logf("remove namespace %s: %v %s", name, err, out)
		}
	}
	if out, err := exec.Command("ip", "link", "del", w.bridge).CombinedOutput(); err != nil {
		w.t.Logf("remove bridge %s: %v %s", w.bridge, err, out)
	}
}
