package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// TestGuide_CommandsWork runs the commands of each page of the user guide, from top to bottom, against a server of its
// own, and compares the end of what they print where the page says it.
func TestGuide_CommandsWork(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("pages of the guide: %v, %v", pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		steps := guideSteps(string(text))
		if len(steps) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			s := newHarness(t)
			dir := t.TempDir()
			for _, step := range steps {
				s.runStep(dir, step)
			}
		})
	}
}

// TestGuide_QueuesOfOnePage: a reader tries the tour of the README and the pages of the guide on one server, so no page
// creates a queue of another one.
func TestGuide_QueuesOfOnePage(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	created := regexp.MustCompile(`columba create queue (\S+)`)
	home := map[string]string{}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range created.FindAllStringSubmatch(string(text), -1) {
			if other := home[m[1]]; other != "" && other != page {
				t.Errorf("%s creates queue %s, and so does %s", page, m[1], other)
			}
			home[m[1]] = page
		}
	}
	if len(home) < 8 {
		t.Errorf("queues of the pages: %v", home)
	}
}

// guideStep is a block of commands, and the end of what they print.
type guideStep struct{ commands, prints string }

var guideBlock = regexp.MustCompile("(?s)```(sh|text)\n(.*?)```")

// guideSteps are the commands of a page, but those that start a server.
func guideSteps(page string) (out []guideStep) {
	for _, m := range guideBlock.FindAllStringSubmatch(page, -1) {
		switch {
		case m[1] == "text":
			out[len(out)-1].prints = m[2]
		case !strings.Contains(m[2], "columba serve"):
			out = append(out, guideStep{commands: m[2]})
		}
	}
	return out
}

func (s *harness) runStep(dir string, step guideStep) {
	s.t.Helper()
	if strings.HasPrefix(step.commands, "columba depth") { // what was done before it may need a moment
		process.Eventually(s.t, step.commands+"prints "+step.prints, func() bool { return beginsAs(s.bash(dir, step.commands), step.prints) })
		return
	}
	if out := s.bash(dir, step.commands); !strings.HasSuffix(out, step.prints) {
		s.t.Fatalf("%s\nprinted\n%s\nthe page says that it ends with\n%s", step.commands, out, step.prints)
	}
}

// beginsAs reports whether the text has the lines of a page, where one that ends with … goes on with what is never the
// same.
func beginsAs(text, page string) bool {
	lines, want := strings.Split(text, "\n"), strings.Split(page, "\n")
	return slices.EqualFunc(lines, want, func(line, want string) bool {
		begin, cut := strings.CutSuffix(want, "…")
		return line == want || cut && strings.HasPrefix(line, begin)
	})
}

// bash is what commands print that have to exit with 0.
func (s *harness) bash(dir, commands string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + filepath.Dir(process.Program) + ":" + os.Getenv("PATH"), "COLUMBA_ADDR=" + s.Addr, "HOME=" + dir}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s\n%v\nstdout: %s\nstderr: %s", commands, err, out, &stderr)
	}
	return string(out)
}
