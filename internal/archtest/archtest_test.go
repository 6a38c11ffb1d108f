package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const moduleRoot = "../.."

func load(t *testing.T, root string) []Package {
	t.Helper()
	pkgs, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) == 0 {
		t.Fatalf("no package found in %s", root)
	}
	return pkgs
}

// TestModule holds this module to its rules.
func TestModule(t *testing.T) {
	pkgs := load(t, moduleRoot)
	for _, v := range Check(pkgs) {
		t.Error(v)
	}
	for _, text := range staleExceptions(pkgs) {
		t.Error("exceptions: ", text)
	}
}

// TestRealModuleRoleImportingRole builds a module on disk whose controller imports an input host, and shows the check,
// from `go list` to the violation, failing on it.
func TestRealModuleRoleImportingRole(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.test/small\n\ngo 1.26\n")
	write("inputhost/inputhost.go", "// Package inputhost owns the publish path.\npackage inputhost\n\nconst Name = \"inputhost\"\n")
	write("controller/controller.go", "// Package controller owns placement.\npackage controller\n")
	if got := Check(load(t, root)); len(got) != 0 {
		t.Fatalf("the module without the import: %v", got)
	}

	write("controller/place.go", "package controller\n\nimport \"example.test/small/inputhost\"\n\nvar place = inputhost.Name\n")
	got := Check(load(t, root))
	if len(got) != 1 || got[0].Rule != "roles" || got[0].Package != "controller" || !strings.Contains(got[0].Text, "role controller imports role inputhost") {
		t.Fatalf("the module with the import: got %v, want one violation of roles by controller", got)
	}

	write("controller/place.go", "package controller\n\nimport \"example.test/small/api\"\n\nvar place = api.NewPlaceServiceHandler(nil)\n")
	if got := Check(load(t, root)); len(got) != 1 || got[0].Rule != "services" {
		t.Fatalf("the module with a service without limits: got %v, want one violation of services", got)
	}
	if err := os.Remove(filepath.Join(root, "controller/place.go")); err != nil {
		t.Fatal(err)
	}
	write("controller/place_test.go", "package controller\n\nimport (\n\t\"net\"\n\t\"testing\"\n\t\"time\"\n\n\t\"example.test/small/inputhost\"\n)\n\n"+
		"func TestPlace(t *testing.T) {\n\ttime.Sleep(1)\n\tnet.Listen(\"tcp\", \"127.0.0.1:4922\")\n\tt.Log(inputhost.Name)\n}\n")
	var broken []string
	for _, v := range Check(load(t, root)) {
		broken = append(broken, v.Rule)
	}
	if want := []string{"roles", "tests", "tests"}; !slices.Equal(broken, want) {
		t.Fatalf("the module whose test imports a role, sleeps and listens on a fixed port: got %v, want %v", broken, want)
	}
}
