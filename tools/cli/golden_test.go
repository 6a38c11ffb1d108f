package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// step is one command line; words are split at spaces, unless args are given.
type step struct {
	line  string
	args  []string
	stdin string
}

// transcript runs steps one after another and is what a user would see, with the exit codes.
func transcript(addr string, steps []step) string {
	var out strings.Builder
	for _, s := range steps {
		args := s.args
		if args == nil {
			args = strings.Fields(s.line)
		}
		fmt.Fprintf(&out, "$ columba %s\n", clipLine(s.line, args))
		stdout, stderr, code := runCLI(addr, args, s.stdin)
		for _, part := range []struct{ mark, text string }{{"", stdout}, {"! ", stderr}} {
			for line := range strings.Lines(strings.ReplaceAll(part.text, addr, "ADDR")) {
				out.WriteString(part.mark + strings.TrimSuffix(line, "\n") + "\n")
			}
		}
		fmt.Fprintf(&out, "→ %d\n\n", code)
	}
	return out.String()
}

func clipLine(line string, args []string) string {
	if line == "" {
		return fmt.Sprintf("%.60q", args)
	}
	return line
}

// runCLI runs one command line in this process against a server.
func runCLI(addr string, args []string, stdin string) (stdout, stderr string, code int) {
	var out, talk bytes.Buffer
	code = Main(context.Background(), args, strings.NewReader(stdin), &out, &talk, []string{"COLUMBA_ADDR=" + addr})
	return out.String(), talk.String(), code
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update to accept):\n%s", name, diff)
	}
}

func TestGolden(t *testing.T) {
	setup := []step{{line: "create queue /demo/a"}, {line: "create group /demo/a billing --start earliest --backoff 1s,2,1m"}}
	scripts := map[string][]step{
		"queues.txt": {
			{line: "create queue /demo/a --max-message 4MiB --consumed-retention 90m"},
			{line: "create queue /demo/a"},
			{line: "cr destination /demo/b -o json"},
			{line: "c q /demo/c /demo/d /demo/a -o yaml"},
			{line: "create queue /demo/three --replicas 3 --min-replicas 1 -o json"},
			{line: "update queue /demo/three --replicas 2 -o json"},
			{line: "delete queue /demo/three --yes"},
			{line: "create queue /demo/f /demo/e.dlq bad"},
			{line: "show queue /demo/f"},
			{line: "create queue --from-stdin", stdin: "/other/x\r\n\n/other/y\nbad\n/demo/a\n/other/z"},
			{line: "create queue --from-stdin /demo/q"},
			{line: "list queues"},
			{line: "ls queues --prefix /other/ -o json"},
			{line: "ls queues --prefix /demo/ --sort backlog"},
			{line: "l destinations --prefix /demo/ -o yaml"},
			{line: "list queues --prefix /none/"},
			{line: "list queues --sort size"},
			{line: "create queue /demo/nogroups"},
			{line: "delete queue /demo/nogroups --dry-run"},
			{line: "delete queue /demo/nogroups --yes"},
			{line: "list queues --prefix /none/ -o yaml"},
			{line: "show queue /demo/a"},
			{line: "show queue /demo/a -o json"},
			{line: "show queue /demo/a -o yaml"},
			{line: "show queue /demo/missing"},
			{line: "u q /demo/a --status receive-only --max-backlog 1GiB -o json"},
			{line: "update queue /demo/a"},
			{line: "d queue /demo/a --dry-run -o json"},
			{line: "show queue /demo/a -o json"},
			{line: "delete queue /demo/a"},
			{line: "delete queue /demo/a", stdin: "y\n"},
			{line: "delete queue /demo/a --yes"},
			{line: "delete queue /demo/a --yes"},
		},
		"groups.txt": append(setup[:1:1], []step{
			{line: "create group /demo/a billing --start -2h --lock-timeout 30s --max-deliveries unlimited --breaker 50% --backoff 1s,2,1m"},
			{line: "create cg /demo/a billing"},
			{line: "create consumergroup /demo/a late --delay 1m --skip-older 1m"},
			{line: "create consumergroup /demo/a late --delay 1m --skip-older 1h --exhausted block -o json"},
			{line: "delete group /demo/a late --yes"},
			{line: "create group /demo/a once --at-most-once"},
			{line: "delete group /demo/a once --yes"},
			{line: "create group /demo/missing g"},
			{line: "create group /demo/a mail -o json"},
			{line: "list queues"},
			{line: "list queues --all"},
			{line: "list groups /demo/a"},
			{line: "show group /demo/a billing -o json"},
			{line: "show group /demo/a billing -o yaml"},
			{line: "show group /demo/a nobody"},
			{line: "update group /demo/a mail --max-deliveries 3 --status disabled -o json"},
			{line: "update group /demo/a mail --start earliest"},
			{line: "update group /demo/a mail --help"},
			{line: "delete group /demo/a mail --dry-run -o json"},
			{line: "delete cg /demo/a mail"},
			{line: "delete group /demo/a mail --yes"},
			{line: "delete group /demo/a mail --yes"},
		}...),
		"inside.txt": append(setup[:2:2], []step{
			{line: "list extents /demo/a"},
			{line: "list extents /demo/a -o json"},
			{line: "show extent " + fakeExtent},
			{line: "show extent " + fakeID},
			{line: "show extent 42"},
			{line: "seal /demo/a " + fakeSealed},
			{line: "seal /demo/a " + fakeSealed + " --dry-run"},
			{line: "seal /demo/a " + fakeExtent + " --dry-run -o json"},
			{line: "seal /demo/a " + fakeExtent + " --force"},
			{line: "seal /demo/a " + fakeExtent + " --force --yes -o json"},
			{line: "seal --force --all-of-store host-gone --dry-run"},
			{line: "seal --force --all-of-store host-gone"},
			{line: "seal --force --all-of-store host-gone --yes"},
			{line: "seal --force --all-of-store host-gone --yes -o json"},
			{line: "seal --force --all-of-store host-there --yes"},
			{line: "seal --force --all-of-store host-none --yes"},
			{line: "seal --all-of-store host-gone"},
			{line: "seal --force --all-of-store host-gone /demo/a"},
			{line: "verify extent " + fakeExtent},
			{line: "verify extent " + fakeExtent + " -o json"},
			{line: "verify extent " + fakeExtent + " --store host-b"},
			{line: "verify extent " + fakeExtent + " --store host-b -o json"},
			{line: "verify extent " + fakeID},
			{line: "verify extent 42"},
			{line: "verify extent"},
			{line: "verify --help"},
			{line: "delete orphans --dry-run"},
			{line: "delete orphans"},
			{line: "delete orphans --yes -o json"},
			{line: "list hosts"},
			{line: "list hosts -o yaml"},
			{line: "show host h2"},
			{line: "show host h3"},
			{line: "depth /demo/a"},
			{line: "depth /demo/a billing -o json"},
			{line: "depth /demo/a none -o json"},
			{line: "depth"},
			{line: "depth --sort age --limit 1 -o json"},
			{line: "depth --prefix /none/"},
			{line: "depth --limit -1"},
			{line: "depth /demo/a --sort age"},
			{line: "why-stuck /demo/a billing"},
			{line: "why-stuck /demo/a billing -o json"},
			{line: "why-stuck /demo/a mail"},
			{line: "why-stuck /demo/a"},
			{line: "why-stuck demo billing"},
			{line: "show message " + fakeExtent + ":7"},
			{line: "show message " + fakeExtent + ":7 -o json"},
			{line: "show message " + fakeExtent + ":7 -o yaml"},
			{line: "show message " + fakeExtent + ":8"},
			{line: "show message " + fakeExtent},
			{line: "show dlq /demo/a billing"},
			{line: "dlq list /demo/a billing"},
			{line: "dlq list /demo/a billing -o json"},
			{line: "dlq list /demo/a billing --limit 1 -o yaml"},
			{line: "dlq peek /demo/a billing --limit 2"},
			{line: "dlq show /demo/a billing --id " + fakeID},
			{line: "dlq show /demo/a billing --id " + fakeExtent},
			{line: "dlq show /demo/a billing"},
			{line: "peek /demo/a --limit 2"},
			{line: "list delayed /demo/a"},
			{line: "list delayed /demo/a --limit 1 -o json"},
			{line: "list delayed /demo/a --limit 1 -o json --after " + fakeExtent + ":1"},
			{line: "list delayed /demo/a --after " + fakeExtent + ":2 -o json"},
			{line: "list delayed /demo/none"},
			{line: "list delayed /demo/a billing"},
			{line: "list delayed /demo/a billing --limit 1 -o json"},
			{line: "list delayed /demo/none billing"},
			{line: "list delayed"},
			{line: "peek /demo/a -o json"},
		}...),
		"audit.txt": {
			{line: "list audit"},
			{line: "list audit -o json"},
			{line: "ls audit /demo/ -o yaml"},
			{line: "list audit /none"},
			{line: "list audit --since 2026-01-02T03:04:05.678Z " + fakeExtent},
			{line: "list audit --since 2026-01-02T03:04:05.679Z"},
			{line: "list audit --since 1m -o json"},
			{line: "list audit --since="},
			{line: "list audit /a /b"},
		},
		"namespaces.txt": {
			{line: "create namespace /acme --max-queues 100 --messages-per-second 5000 --bytes-per-second 20MiB --backlog-bytes 50GiB"},
			{line: "create ns /acme --max-queues 1"},
			{line: "create namespace /small --messages-per-second 10 -o json"},
			{line: "create namespace /none"},
			{line: "create namespace acme --max-queues 1"},
			{line: "create namespace /a/b --max-queues 1"},
			{line: "create namespace /neg --max-queues -1"},
			{line: "list namespaces"},
			{line: "list namespaces -o json"},
			{line: "show namespace /acme -o yaml"},
			{line: "show namespace /missing"},
			{line: "update namespace /acme --messages-per-second 0 -o json"},
			{line: "update namespace /acme"},
			{line: "update namespace /missing --max-queues 1"},
			{line: "delete namespace /acme --dry-run -o json"},
			{line: "delete namespace /acme"},
			{line: "delete namespace /acme"},
		},
		"tokens.txt": {
			{line: "ack good1 good2"},
			{line: "ack bad1"},
			{line: "ack good1 bad1 old1 -o json"},
			{line: "ack -", stdin: "good1\ngood2\n\nold1\n"},
			{line: "nack old1 --delay 5s --reason later"},
			{line: "nack good1 --delay -5s"},
			{line: "reject good1"},
			{line: "reject good1 --reason broken -o yaml"},
			{line: "extend good1 10m"},
			{line: "extend good1 soon"},
			{line: "ack"},
		},
		"usage.txt": {
			{line: "create queue /x"},
			{line: "create queue a/b"},
			{line: "create queue /../x"},
			{args: []string{"create", "queue", "/a/b\x1b[31m\n"}},
			{args: []string{"create", "queue", "/a/" + strings.Repeat("x", 300)}},
			{args: []string{"create", "queue", ""}},
			{line: "create queue /a/b/c/d/e/f"},
			{line: "create queue /a/b.retry"},
			{line: "create group /a/b g/h"},
			{line: "create group /a/b g.dlq"},
			{line: "create queue /a/b --replicas 99"},
			{line: "create queue /a/b --replicas 0"},
			{line: "create queue /a/b --consumed-retention 0"},
			{line: "update queue /a/b --max-message 0"},
			{line: "create queue /a/b --replicas x"},
			{line: "create queue /a/b --max-message 1TiB"},
			{line: "create queue /a/b --max-message many"},
			{line: "create queue /a/b --durability maybe"},
			{line: "create queue /a/b --consumed-retention -1s"},
			{line: "create group /a/b g --lock-timeout 1ms"},
			{line: "create group /a/b g --max-deliveries 0"},
			{line: "create group /a/b g --breaker 101"},
			{line: "create group /a/b g --start tomorrow"},
			{line: "create group /a/b g --backoff 1s"},
			{line: "create group /a/b g --exhausted explode"},
			{line: "create queue /a/b --unknown"},
			{line: "create queue /a/b -z"},
			{line: "create queue /a/b --max-mesage 1MiB"},
			{line: "list queues --pre /a"},
			{line: "completion tcsh"},
			{line: "completion"},
			{line: "list hosts --addr nowhere"},
			{line: "list hosts --addr 127.0.0.1:4922,"},
			{line: "create group /a/b g --braeker off"},
			{line: "create"},
			{line: "crate queue /a/b"},
			{line: "create thing /a/b"},
			{line: "show queue"},
			{line: "list hosts please"},
			{line: "version -o toml"},
			{line: "version --timeout 0s"},
			{line: "help nothing"},
			{line: "publish /a/b --delay 1s --at 2026-01-02T15:04:05Z"},
			{line: "publish /a/b --expire -1s"},
			{line: "publish /a/b --at noon"},
			{line: "publish /a/b --header x"},
			{line: "publish /a/b --in-flight 0"},
			{line: "publish /a/b --in-flight 1.5"},
			{line: "publish /a/b --in-flight 99999999999999999999"},
			{line: "publish /a/b --rate many"},
			{line: "publish /a/b --rate Inf"},
			{line: "publish /a/b --expire 0s"},
			{line: "publish /a/b --at="},
			{line: "publish /a/b --file="},
			{line: "merge-dlq /a/b g --min-attempts -1"},
			{line: "merge-dlq /a/b g --id="},
			{line: "list queues --prefix /a --prefix /b"},
			{line: "publish /a/b --header a=1 --header a=2"},
			{line: "consume /a/b g --prefetch-bytes 0"},
			{line: "delete queue /a/b --yes --yes --timeout 1d12x"},
			{line: "purge-dlq /a/b g --id="},
			{line: "purge-dlq /a/b g --older-than="},
			{line: "dlq list /a/b g --id="},
			{line: "create group /a/b g --start="},
			{line: "update group /a/b g --backoff="},
			{line: "create queue /a/b --max-message 1.5"},
			{line: "create queue /a/b --max-message 5"},
			{line: "create queue /a/b --from-stdin=perhaps"},
			{line: "bench publish /a/b --producers 0"},
			{line: "bench consume /a/b g --consumers 0"},
			{line: "bench consume /a/b g --prefetch 0"},
			{line: "bench consume /a/b g --idle -1s"},
			{line: "bench latency /a/b --duration -1s"},
			{line: "list hosts --addr 127.0.0.1:0"},
			{line: "list hosts --addr 127.0.0.1:65536"},
			{line: "seek /a/b g -2h"},
			{line: "seek /a/b g --to 5"},
			{line: "create group /a/b g --at-most-once --max-deliveries 5"},
			{line: "create group /a/b g --at-most-once --backoff 1s,2,1m"},
			{line: "create group /a/b g --start 5"},
			{line: "list audit --since 5"},
			{line: "publish /a/b --at 5"},
			{line: "extend token -1s"},
			{line: "list hosts --timeout soon"},
			{line: "publish /a/b --rate NaN"},
			{line: "publish /a/b --file /does/not/exist"},
			{line: "publish /a/b --file /"},
			{line: "consume /a/b g --ack perhaps"},
			{line: "consume /a/b g --ack none --nack-every 2"},
			{line: "consume /a/b g --count -1"},
			{line: "bench publish /a/b --producers 0"},
			{line: "config check /does/not/exist"},
			{line: "config print --diff --replicas 3 --zone z1"},
			{line: "config print --replicas 99"},
		},
	}
	for name, steps := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr := newFakeServer(t)
			golden(t, name, transcript(addr, steps))
		})
	}
}
