package sabotage

import (
	"os"
	"strings"
	"testing"
)

const root = "../.."

// TestBuilds_Apply fails when the code has moved away under a sabotage.
func TestBuilds_Apply(t *testing.T) {
	for _, b := range Builds {
		if _, err := Overlay(root, t.TempDir(), b.Edits); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
		if len(b.Edits) == 0 || len(b.Checks) == 0 {
			t.Errorf("%s breaks nothing or has no check", b.Name)
		}
	}
}

// TestOverlay_Refuses has places that are not there, or are there twice.
func TestOverlay_Refuses(t *testing.T) {
	for name, e := range map[string]Edit{
		"not there": {"core/seal/seal.go", "no such text", ""},
		"twice":     {"core/seal/seal.go", "return", ""},
		"no file":   {"core/seal/none.go", "x", ""},
	} {
		if _, err := Overlay(root, t.TempDir(), []Edit{e}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestBuilds_AreCaught breaks the code in each way and wants every check of it to fail, and to pass as it is. Only the
// quick ones without COLUMBA_FAULTS.
func TestBuilds_AreCaught(t *testing.T) {
	all := os.Getenv("COLUMBA_FAULTS") != ""
	table := []string{"| sabotage | caught by | which says |", "|---|---|---|"}
	for _, b := range Builds {
		if !b.Quick && !all {
			continue
		}
		overlay, err := Overlay(root, t.TempDir(), b.Edits)
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
			continue
		}
		for _, c := range b.Checks {
			table = append(table, "| "+strings.Join([]string{b.Name, try(t, b, c, overlay)}, " | ")+" |")
		}
	}
	t.Logf("sabotaged builds:\n%s", strings.Join(table, "\n"))
	if path := os.Getenv("COLUMBA_FAULTS_REPORT"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("\n" + strings.Join(table, "\n") + "\n"); err != nil {
			t.Error(err)
		}
	}
}

// try is the cells of a row of the table.
func try(t *testing.T, b Build, c Check, overlay string) string {
	sound, err := c.Try(t.Context(), root, "")
	if err != nil || sound.Caught {
		t.Errorf("%s fails without any sabotage: %v %s\n%.4000s", c, err, sound.Test, sound.Output)
		return c.String() + " | NOTHING: it fails anyway"
	}
	v, err := c.Try(t.Context(), root, overlay)
	switch {
	case err != nil:
		t.Errorf("%s: %v", b.Name, err)
		return c.String() + " | ERROR"
	case !v.Caught:
		t.Errorf("%s: %s does not notice: %s", b.Name, c, b.Means)
		return "NOT by " + c.String() + " | –"
	}
	return c.Package + " " + v.Test + " | " + strings.ReplaceAll(v.Says, "|", "∣")
}
