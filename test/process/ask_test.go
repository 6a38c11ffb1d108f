package process

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAsk_OnceUnavailable has a program that can answer only when it is asked again.
func TestAsk_OnceUnavailable(t *testing.T) {
	dir := t.TempDir()
	before, program := filepath.Join(dir, "asked"), filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ -e "+before+" ] && echo \"$@\" && exit\ntouch "+before+"\nexit 5\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	defer func(built string) { Program = built }(Program)
	Program = program
	if got := At(t, "127.0.0.1:1").Ask("depth", "/t/a"); got != "depth /t/a\n" {
		t.Errorf("answered %q", got)
	}
}
