package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// TestReadme_Tour pastes the commands of the README's tour into a shell, as one block: the server that it starts in the
// background is still starting when the next command runs.
func TestReadme_Tour(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tour, _ := strings.Cut(string(text), "\n## Two minutes\n")
	tour, _, found := strings.Cut(tour, "\n## ")
	var script strings.Builder
	for _, step := range guideBlock.FindAllStringSubmatch(tour, -1) {
		if step[1] == "sh" {
			script.WriteString(step[2])
		}
	}
	if !found || script.Len() == 0 {
		t.Fatal("README.md has no tour")
	}
	dir := t.TempDir()
	commands := strings.NewReplacer("make build\n", "", "bin/columba", "columba", "2>/tmp/columba.log", "2>"+filepath.Join(dir, "log"), "/tmp/columba", filepath.Join(dir, "columba")).Replace(script.String())
	// A reader of the page needs longer for a line than a rejected message for its way to the dead letters.
	rejected := "until columba show dlq /demo/trips audit -o json | grep -q '\"dead\":1'; do sleep 0.05; done\n"
	commands = strings.Replace(commands, "columba dlq list", rejected+"columba dlq list", 1)
	// The shell ends its server, and waits for it.
	commands = "trap 'kill %1; wait' EXIT\n" + commands + "columba depth /demo/trips -o json\n"
	addr := process.FreeAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + filepath.Dir(process.Program) + ":" + os.Getenv("PATH"), "COLUMBA_ADDR=" + addr, "COLUMBA_LISTEN=" + addr, "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\nstdout: %s\nstderr: %s", err, out, &stderr)
	}
	for _, want := range []string{"ready addr=" + addr, "\n1000\n", "no such trip", `"group":"audit","ready":1000,`, `"group":"billing","ready":0,`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour does not print %q:\n%s\nstderr: %s", want, out, &stderr)
		}
	}
}
