package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/tools/demo"
)

func TestRun_RefusesDirectories(t *testing.T) {
	for name, dir := range map[string]string{"missing": filepath.Join(t.TempDir(), "no"), "empty": t.TempDir()} {
		var log bytes.Buffer
		err := demo.Run(t.Context(), demo.Options{Dir: dir, Data: t.TempDir(), Out: &log, Log: &log})
		if core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%s: got %v, want %s", name, err, core.CodeBadArgument)
		}
	}
}

// TestRun_SmallTree runs the whole job, murders included, on a tree made for it.
func TestRun_SmallTree(t *testing.T) {
	dir, program := t.TempDir(), filepath.Join(t.TempDir(), "columba")
	build := exec.Command("go", "build", "-o", program, "github.com/columbamq/columba/cmd/columba")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as what is released
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	const files, broken = 2000, 100
	for i := range files {
		name, text := fmt.Sprintf("f%04d.txt", i), fmt.Sprintf("file\n%d\n", i)
		switch {
		case i%(files/broken) == 0:
			name, text = fmt.Sprintf("f%04d.go", i), fmt.Sprintf("package p\n\nfunc f%d( {\n", i)
		case i%5 == 1:
			name, text = fmt.Sprintf("f%04d.go", i), fmt.Sprintf("package p\n\nfunc f%d() {}\n", i)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, log bytes.Buffer
	err := demo.Run(ctx, demo.Options{Dir: dir, Program: program, Data: filepath.Join(t.TempDir(), "data"), Out: &out, Log: &log, Format: "json"})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.Bytes())
	}
	var r demo.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("report %q: %v", out.Bytes(), err)
	}
	if !r.Verified || r.Results != files || r.DeadLetters != broken || r.ServersKilled != 1 || r.WorkersKilled != 1 {
		t.Fatalf("report %+v", r)
	}
}
