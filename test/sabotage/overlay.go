// Package sabotage owns builds of Columba that are broken on purpose, and the checks that have to notice.
package sabotage

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces one place of one source file.
type Edit struct {
	File     string // from the module's root
	Old, New string // Old has to be there exactly once
}

// Overlay writes the edited files to dir, and the file that `go build -overlay` takes, whose path it returns. root is
// the module's. A place that is not found is an error: the code has changed, and the sabotage has to follow it.
func Overlay(root, dir string, edits []Edit) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	texts := make(map[string]string)
	for _, e := range edits {
		text, ok := texts[e.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return "", fmt.Errorf("sabotage of %s: %w", e.File, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return "", fmt.Errorf("sabotage of %s: the text to be replaced is there %d times, want once; the code has changed, change the sabotage too:\n%s", e.File, n, e.Old)
		}
		texts[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	replace := make(map[string]string)
	for file, text := range texts {
		edited := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(edited, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = edited
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o644)
}
