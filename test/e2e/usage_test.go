package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/columbamq/columba/test/process"
)

func TestOneServer_BadInput(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"create queue /x", 2, "(bad_name)"},
		{"create queue a/b", 2, "(bad_name)"},
		{"create queue /../x", 2, "(bad_name)"},
		{"create queue /a/b\x01", 2, "(bad_name)"},
		{"create queue /a/" + strings.Repeat("l", 300), 2, "(bad_name)"},
		{"create queue /t/a", 4, "(already_exists)"},
		{"create group /t/a g", 4, "(already_exists)"},
		{"create group /t/missing g", 3, "(not_found)"},
		{"create group /t/a h --delay 1h --skip-older 1h", 2, ") – "},
		{"show queue /t/missing", 3, "(not_found)"},
		{"show group /t/a missing", 3, "(not_found)"},
		{"show extent 01890a5d-ac96-774b-bcce-b302099a8057", 3, "(not_found)"},
		{"delete queue /t/a", 2, "--yes"},
		{"delete queue /t/missing --yes", 3, "(not_found)"},
		{"delete group /t/a missing --yes", 3, "(not_found)"},
		{"depth /t/missing", 3, "(not_found)"},
		{"peek /t/missing", 3, "(not_found)"},
		{"dlq list /t/a missing", 3, "(not_found)"},
		{"publish /t/missing", 3, "(not_found)"},
		{"consume /t/missing g", 3, "(not_found)"},
		{"consume /t/a missing", 3, "(not_found)"},
		{"publish /t/a --delay 9000h", 2, "longer than a year"},
		{"publish /t/a --at 2136-01-02T15:04:05Z", 2, "at most a year ahead"},
		{"publish /t/a --file /", 2, "is a directory"},
		{"publish /t/a/g.dlq", 2, "(unsupported) – publish to /t/a instead"},
		{"update group /t/a g --start earliest", 2, "move the group with `columba seek`"},
		{"inspect extents /does/not/exist", 3, "(not_found)"},
		{"demo --dir /does/not/exist", 2, "(bad_argument)"},
		{"completion tcsh", 2, "(bad_argument)"},
		{"ack forged", 2, "(bad_token)"},
		{"list queues --unknown", 2, "(bad_argument)"},
		{"explode", 2, "(bad_argument)"},
		{"list queues --addr 127.0.0.1:1 --timeout 200ms", 5, "(unavailable)"},
	} {
		r := s.Run("x\n", strings.Split(c.args, " ")...)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) || !strings.HasPrefix(r.Stderr, "error: ") {
			t.Errorf("columba %.60s: exit code %d, want %d; stderr %q, want %q", c.args, r.Code, c.code, r.Stderr, c.says)
		}
	}
	s.Must("", "list", "hosts") // it lives
}

func TestOneServer_ManyQueues(t *testing.T) {
	const n = 1200
	s := newHarness(t)
	var paths strings.Builder
	for i := range n {
		fmt.Fprintf(&paths, "/many/q%d\n", i)
	}
	s.Must(paths.String(), "create", "queue", "--from-stdin")
	if got := strings.Count(s.Must("", "list", "queues", "--prefix", "/many/", "-o", "json"), "\n"); got != n {
		t.Errorf("%d queues are listed, want %d", got, n)
	}
	if r := s.Run(paths.String(), "create", "queue", "--from-stdin"); r.Code != 1 || strings.Count(r.Stderr, "(already_exists)") != n {
		t.Errorf("again: exit code %d, %d times already_exists", r.Code, strings.Count(r.Stderr, "(already_exists)"))
	}
}

func TestOneServer_DrainsAndKeeps(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g", "--start", "earliest")
	s.Must(numbers(1, 1000), "publish", "/t/a")
	wantAll(t, "before", count(s.Must("", "consume", "/t/a", "g", "--count", "500", "--timeout", "20s")), 500, true)
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0; log:\n%s", code, s.Log())
	}
	inspected := s.Must("", "inspect", "extents", s.Data, "-o", "json")
	type extent struct{ Extent string }
	for _, e := range process.Decode[extent](t, inspected) {
		s.Must("", "inspect", "extent", s.Data, e.Extent)
	}
	s.Start()
	if got := count(s.Must("", "consume", "/t/a", "g", "--count", "500", "--timeout", "20s")); len(got) != 500 {
		t.Errorf("after a restart %d of the other 500 messages came", len(got))
	}
	if r := s.Run("", "inspect", "extents", s.Data); r.Code != 4 || !strings.Contains(r.Stderr, "(directory_locked)") {
		t.Errorf("inspect beside a server: exit code %d: %s", r.Code, r.Stderr)
	}
}

func TestServe_RefusesBadDirectories(t *testing.T) {
	s := newHarness(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, args string
		code       int
		says       string
	}{
		{"in use", "serve --data " + s.Data + " --listen 127.0.0.1:0", 4, "(directory_locked)"},
		{"no parent", "serve --data " + filepath.Join(t.TempDir(), "a", "b") + " --listen 127.0.0.1:0", 3, "(not_found)"},
		{"a file", "serve --listen 127.0.0.1:0 --data " + file, 2, "(bad_argument)"},
		{"open address", "serve --listen 0.0.0.0:0 --data " + filepath.Join(t.TempDir(), "d"), 2, "--insecure"},
		{"role", "serve --roles cook", 2, "(bad_argument)"},
		{"argument", "serve now", 2, "(bad_argument)"},
		{"config", "serve --config /does/not/exist", 2, "(bad_argument)"},
	} {
		r := s.Run("", strings.Fields(c.args)...)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) || r.Stdout != "" {
			t.Errorf("%s: exit code %d, want %d; stdout %q, stderr %q", c.name, r.Code, c.code, r.Stdout, r.Stderr)
		}
	}
	s.Must("", "list", "hosts")
}

func TestCompletion_Works(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/alpha")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := s.Must("", "completion", shell); !strings.Contains(out, "columba") {
			t.Errorf("%s: %.60q", shell, out)
		}
	}
	if out := s.Must("", "__complete", "publish", "/t/"); !strings.HasPrefix(out, "/t/alpha\n") {
		t.Errorf("completion of /t/: %q", out)
	}
}
