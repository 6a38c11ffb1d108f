package metadata

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestTables_AreAll reads the declarations: a table that is not in Tables would be left out when metadata are copied.
func TestTables_AreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "tables.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		name, ok := lit.Type.(*ast.Ident)
		if !ok || name.Name != "Table" || len(lit.Elts) == 0 {
			return true
		}
		declared++
		text := lit.Elts[0].(*ast.BasicLit).Value
		if _, ok := TableOf(text[1 : len(text)-1]); !ok {
			t.Errorf("table %s is not in Tables", text)
		}
		return true
	})
	if declared != len(Tables) || declared == 0 {
		t.Errorf("%d tables are declared, %d are in Tables", declared, len(Tables))
	}
}
