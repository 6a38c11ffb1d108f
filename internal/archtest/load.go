package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listed is what `go list` says about a package.
type listed struct {
	Dir          string
	ImportPath   string
	Name         string
	Module       struct{ Path, Dir string }
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// Load lists the packages of the module at root and reads their files.
func Load(ctx context.Context, root string) ([]Package, error) {
	if err := touchTree(root); err != nil {
		return nil, err
	}
	const fields = "-json=Dir,ImportPath,Name,Module,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps"
	cmd := exec.CommandContext(ctx, "go", "list", "-e", fields, "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w: %s", root, err, stderr.Bytes())
	}
	var pkgs []Package
	for dec := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		p, err := l.read()
		if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
}

// touchTree reads every folder. The test's result is cached by what the test itself has opened; `go list` is another
// process, whose reading does not count.
func touchTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		return err
	})
}

func (l listed) read() (Package, error) {
	rel := func(imports []string) []string {
		out := make([]string, len(imports))
		for i, imp := range imports {
			out[i] = strings.TrimPrefix(imp, l.Module.Path+"/")
		}
		return out
	}
	p := Package{
		Path:        strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, l.Module.Path), "/"),
		Name:        l.Name,
		Imports:     rel(l.Imports),
		TestImports: rel(slices.Concat(l.TestImports, l.XTestImports)),
		Deps:        rel(slices.DeleteFunc(l.Deps, func(dep string) bool { return !external(dep) })),
	}
	p.TestImports = slices.DeleteFunc(p.TestImports, func(imp string) bool { return imp == p.Path })
	for _, name := range slices.Concat(l.GoFiles, l.TestGoFiles, l.XTestGoFiles) {
		src, err := readSource(filepath.Join(l.Dir, name))
		if err != nil {
			return Package{}, err
		}
		src.File = filepath.ToSlash(filepath.Join(p.Path, name))
		p.Sources = append(p.Sources, src)
	}
	return p, nil
}

func readSource(path string) (Source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Source{}, fmt.Errorf("read source: %w", err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		return Source{}, fmt.Errorf("parse source: %w", err)
	}
	s := Source{
		Test:      strings.HasSuffix(path, "_test.go"),
		Generated: ast.IsGenerated(file),
		Lines:     bytes.Count(text, []byte("\n")),
		Doc:       file.Doc.Text(),
	}
	virtual := importsPath(file, "testing/synctest")
	ast.Inspect(file, func(n ast.Node) bool {
		use, ok := lookAt(n)
		if !ok {
			return true
		}
		at := strconv.Itoa(fset.Position(n.Pos()).Line) + ": " + use.what
		switch {
		case use.service:
			s.Services = append(s.Services, at)
		case use.port && s.Test:
			s.Ports = append(s.Ports, at)
		case use.clock:
			s.Clock = append(s.Clock, at)
			if s.Test && !virtual && use.what == "time.Sleep" {
				s.Sleeps = append(s.Sleeps, at)
			}
		}
		return true
	})
	return s, nil
}

func importsPath(file *ast.File, path string) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(path) })
}

// use is something in the code that a rule asks about.
type use struct {
	what        string
	clock, port bool
	service     bool
}

var clockFuncs = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// lookAt finds uses of the clock, calls of Listen… with a port that is not 0, and calls of the generated constructors
// of services.
func lookAt(n ast.Node) (use, bool) {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clockFuncs, n.Sel.Name) {
			return use{what: "time." + n.Sel.Name, clock: true}, true
		}
	case *ast.CallExpr:
		fun, ok := n.Fun.(*ast.SelectorExpr)
		if ok && strings.HasPrefix(fun.Sel.Name, "New") && strings.HasSuffix(fun.Sel.Name, "ServiceHandler") {
			return use{what: fun.Sel.Name, service: true}, true
		}
		if !ok || !strings.HasPrefix(fun.Sel.Name, "Listen") {
			break
		}
		for _, arg := range n.Args {
			if addr, ok := fixedPort(arg); ok {
				return use{what: addr, port: true}, true
			}
		}
	}
	return use{}, false
}

// fixedPort reports whether an expression is a literal address with a port other than 0.
func fixedPort(e ast.Expr) (addr string, ok bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	addr, err := strconv.Unquote(lit.Value)
	if err != nil {
		return "", false
	}
	port, err := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	return addr, err == nil && port != 0 && strings.Contains(addr, ":")
}
