package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/columbamq/columba/core"
)

// FuzzConfigFile reads any text as a configuration file. An accepted file is printed as a file that means the same.
func FuzzConfigFile(f *testing.F) {
	var printed bytes.Buffer
	if err := DefaultConfig().Print(&printed, false); err != nil {
		f.Fatal(err)
	}
	f.Add(printed.Bytes())
	for _, s := range []string{"", "data: /x\nroles: [storehost]\n", "join: [a:1, b:2]", "- a", "data: 1\ndata: 2", "a: &a [*a]", "---\n---\n", "data: |\n  x\n", "? [a]\n: b", "insecure: yes", "null", "{}", "#"} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	read := func(t *testing.T, text []byte) (*Config, error) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, settings := settingsOf(DefaultConfig())
		_, errs := readFile(path, settings)
		return cfg, errors.Join(errs...)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := read(t, text)
		if err != nil {
			if code := core.CodeOf(err); code == core.CodeInternal {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		_ = cfg.Validate()
		var out bytes.Buffer
		if err := cfg.Print(&out, false); err != nil {
			t.Fatal(err)
		}
		again, err := read(t, out.Bytes())
		if err != nil {
			t.Fatalf("what was printed is refused: %v\n%s", err, out.String())
		}
		if diff := cmp.Diff(cfg, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("what was printed means something else:\n%s\n%s", diff, out.String())
		}
	})
}

// TestConfigFile_TooLong has a configuration without an end: the answer says what to do, not what to do about a message
// that is too large.
func TestConfigFile_TooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	_, err := readBounded(path)
	wantCode(t, "too long", err, core.CodeTooLarge, "; name a file of settings with --config")
}
