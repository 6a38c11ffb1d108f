package archtest

import (
	"slices"
	"strings"
	"testing"
)

// expect checks one made-up package, which breaks nothing but what imports and sources say, and wants exactly these
// rules broken.
func expect(t *testing.T, p Package, want ...string) {
	t.Helper()
	if p.Name == "" {
		p.Name = p.Path[strings.LastIndexByte(p.Path, '/')+1:]
	}
	var got []string
	violations := Check([]Package{p})
	for _, v := range violations {
		got = append(got, v.Rule)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: broken rules: got %v, want %v\n%v", p.Path, got, want, violations)
	}
}

func TestRuleCatchesRoleImportingRole(t *testing.T) {
	expect(t, Package{Path: "controller", Imports: []string{"inputhost"}}, "roles")
	expect(t, Package{Path: "inputhost/writer", Imports: []string{"storehost/extentlog"}}, "roles")
	expect(t, Package{Path: "outputhost", TestImports: []string{"storehost"}}, "roles")
	expect(t, Package{Path: "storehost/extentlog", Imports: []string{"storehost/space"}}, "roles")
	expect(t, Package{Path: "storehost", Imports: []string{"storehost/extentlog", "core", "wire/ws", "internal/peer", "metadata"}})
	expect(t, Package{Path: "storehost/extentlog", TestImports: []string{"storehost/extentlog/extentlogtest"}})
}

func TestRuleCatchesImportsUpTheFloors(t *testing.T) {
	expect(t, Package{Path: "metadata", Imports: []string{"controller"}}, "floors")
	expect(t, Package{Path: "internal/boundq", Imports: []string{"wire"}}, "floors")
	expect(t, Package{Path: "wire", Imports: []string{"api/columbav1"}}, "floors")
	expect(t, Package{Path: "inputhost", Imports: []string{"node"}}, "floors")
	expect(t, Package{Path: "node", TestImports: []string{"tools/cli"}}, "floors")
	expect(t, Package{Path: "storehost", Imports: []string{"client"}}, "floors")
	expect(t, Package{Path: "node", Imports: []string{"controller", "client", "internal/telemetry", "metadata/pebble"}})
	expect(t, Package{Path: "wire/ws", Imports: []string{"wire"}})
	expect(t, Package{Path: "attic/old"}, "floors")
}

func TestRuleKeepsCorePure(t *testing.T) {
	expect(t, Package{Path: "core", Imports: []string{"slices", "time", "golang.org/x/sync/errgroup"}}, "core")
	expect(t, Package{Path: "core/dispatch", Imports: []string{"core", "core/acklevel", "internal/boundq"}}, "core")
	doc := "Package core owns nouns."
	expect(t, Package{Path: "core", Sources: []Source{{File: "core/id.go", Doc: doc, Clock: []string{"7: time.Now"}}}}, "core")
	expect(t, Package{Path: "core", TestImports: []string{"pgregory.net/rapid"}, Sources: []Source{
		{File: "core/id.go", Doc: doc}, {File: "core/id_test.go", Test: true, Clock: []string{"7: time.Now"}}}})
}

func TestRuleKeepsClientSmall(t *testing.T) {
	expect(t, Package{Path: "client", Imports: []string{"internal/telemetry"}}, "client")
	expect(t, Package{Path: "client", Imports: []string{"core/dispatch"}}, "client")
	expect(t, Package{Path: "client", Deps: []string{"github.com/prometheus/client_golang/prometheus"}}, "client")
	expect(t, Package{Path: "client", Deps: []string{"github.com/cockroachdb/pebble/v2/vfs"}}, "client")
	expect(t, Package{Path: "client", Imports: []string{"client/clienttest"}}, "client")
	expect(t, Package{Path: "client/clienttest", Imports: []string{"client", "outputhost"}, Deps: []string{"github.com/cockroachdb/pebble/v2"}})
	expect(t, Package{Path: "outputhost", TestImports: []string{"client/clienttest"}}, "floors")
	expect(t, Package{Path: "client", Imports: []string{"api/columbav1", "wire", "wire/ws", "core", "internal/publish", "sync"}})
}

func TestRuleKeepsLibrariesInTheirFences(t *testing.T) {
	expect(t, Package{Path: "storehost", Imports: []string{"github.com/cockroachdb/pebble/v2"}}, "fences")
	expect(t, Package{Path: "frontend", Imports: []string{"github.com/gorilla/websocket"}}, "fences")
	expect(t, Package{Path: "node", Imports: []string{"github.com/spf13/cobra"}}, "fences")
	expect(t, Package{Path: "metadata/pebble", Imports: []string{"github.com/gocql/gocql"}}, "fences")
	expect(t, Package{Path: "controller", Imports: []string{"github.com/hashicorp/serf/serf"}}, "fences")
	expect(t, Package{Path: "controller", Imports: []string{"go.opentelemetry.io/otel/sdk/trace"}}, "fences")
	expect(t, Package{Path: "wire", TestImports: []string{"github.com/stretchr/testify/require"}}, "fences")
	expect(t, Package{Path: "metadata/pebble", Imports: []string{"github.com/cockroachdb/pebble/v2", "metadata"}})
	expect(t, Package{Path: "tools/cli", Imports: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"}})
	expect(t, Package{Path: "controller", Imports: []string{"go.opentelemetry.io/otel/trace"}})
}

func TestRuleCatchesEmptyNames(t *testing.T) {
	expect(t, Package{Path: "internal/util"}, "names")
	expect(t, Package{Path: "storehost/types/disk"}, "names")
	expect(t, Package{Path: "storehost/extentlog", Name: "manager"}, "names")
}

func TestRuleCatchesMissingDoc(t *testing.T) {
	expect(t, Package{Path: "wire", Sources: []Source{{File: "wire/frame.go"}}}, "doc")
	expect(t, Package{Path: "wire", Sources: []Source{{File: "wire/frame.go", Doc: "frames and such"}}}, "doc")
	expect(t, Package{Path: "cmd/columba", Name: "main", Sources: []Source{{File: "cmd/columba/main.go", Doc: "Package main runs."}}}, "doc")
	expect(t, Package{Path: "cmd/columba", Name: "main", Sources: []Source{{File: "cmd/columba/main.go", Doc: "Command columba is the server."}}})
	expect(t, Package{Path: "api/columbav1", Sources: []Source{{File: "api/columbav1/a.pb.go", Generated: true}}})
}

func TestRuleCatchesSize(t *testing.T) {
	doc := "Package wire owns frames."
	expect(t, Package{Path: "wire", Sources: []Source{{File: "wire/a.go", Doc: doc, Lines: maxLines}}})
	expect(t, Package{Path: "wire", Sources: []Source{{File: "wire/a.go", Doc: doc, Lines: maxLines + 1}}}, "size")
}

func TestStaleExceptions(t *testing.T) {
	if got := staleExceptions([]Package{{Path: "wire/ws"}}); len(got) != 2 {
		t.Errorf("a link that imports neither wire nor core: got %q, want its two rows", got)
	}
	if got := staleExceptions([]Package{{Path: "wire/ws", Imports: []string{"wire", "core"}}}); len(got) != 0 {
		t.Errorf("a link that imports both: got %q, want none", got)
	}
}

func TestRuleCatchesServicesWithoutLimits(t *testing.T) {
	doc := "Package outputhost owns deliveries."
	made := []string{"12: NewOutputServiceHandler"}
	expect(t, Package{Path: "outputhost", Sources: []Source{{File: "outputhost/outputhost.go", Doc: doc, Services: made}}}, "services")
	expect(t, Package{Path: "outputhost", Sources: []Source{{File: "outputhost/outputhost.go", Doc: doc}, {File: "outputhost/a_test.go", Test: true, Services: made}}})
}
