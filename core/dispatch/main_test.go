package dispatch

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/columbamq/columba/internal/underrace"
)

// TestMain draws fewer cases under the race detector, which makes them ten times as slow.
func TestMain(m *testing.M) {
	if underrace.On {
		if err := flag.Set("rapid.checks", "5"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestSources_NoGoroutine: `make race` leaves this package out, which is right while neither the package nor its
// tests start a goroutine.
func TestSources_NoGoroutine(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d sources: %v", len(files), err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range file.Imports {
			if p := path.Path.Value; p == `"sync"` || p == `"testing/synctest"` {
				t.Errorf("%s imports %s", name, p)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, is := n.(*ast.GoStmt); is {
				t.Errorf("%s starts a goroutine", name)
			}
			return true
		})
	}
}
