package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoticeNamesEveryModule compares NOTICE with the modules that are in the program.
func TestNoticeNamesEveryModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "NOTICE"))
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./cmd/columba")
	list.Dir, list.Env = moduleRoot, append(os.Environ(), "CGO_ENABLED=1") // with cgo it has the most modules
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	named := strings.Fields(string(text))
	modules := slices.Sorted(slices.Values(strings.Fields(string(out))))
	for _, m := range slices.Compact(modules) {
		if !slices.Contains(named, m) {
			t.Errorf("NOTICE does not name %s, which is in the program; add it under its licence", m)
		}
	}
	for _, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "  "); ok && strings.Contains(name, "/") && !strings.Contains(name, ". ") {
			if m := strings.Fields(name)[0]; !slices.Contains(modules, m) {
				t.Errorf("NOTICE names %s, which is not in the program", m)
			}
		}
	}
}
