// Package archtest owns the rules of the source tree – which package may import which, what a package must
// have, what a test must not do – and checks them against a list of packages.
package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Package is what the rules look at. All paths are relative to the module's root, with slashes; imports of other
// modules and of the standard library are whole import paths.
type Package struct {
	Path        string   // "storehost/extentlog", "" for the root
	Name        string   // the package clause
	Imports     []string // of the code
	TestImports []string // of its tests, internal and external
	Deps        []string // all that the code needs, directly or not, but the standard library
	Sources     []Source
}

// Source is what the rules look at in one file of Go.
type Source struct {
	File      string // relative to the module's root
	Test      bool   // _test.go
	Generated bool   // by a tool: the rules of style do not hold for it
	Lines     int
	Doc       string   // the package comment, "" when the file has none
	Clock     []string // "12: time.Now": uses of the clock, outside of what synctest makes virtual
	Sleeps    []string // "12: time.Sleep" in a test that does not run in a synctest bubble
	Ports     []string // "12: 127.0.0.1:8080": a test that listens on a port it chose itself
	Services  []string // "12: NewOutputServiceHandler": makes the handler of a service by itself
}

// Violation is one broken rule.
type Violation struct {
	Rule    string // the name of the rule
	Package string
	Text    string // what breaks it, and what to do
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Package, v.Text) }

// Check applies all rules. The result is sorted; it is empty when the tree is as it should be.
func Check(pkgs []Package) []Violation {
	var out []Violation
	for _, p := range pkgs {
		for _, rule := range rules {
			for _, text := range rule.check(p) {
				out = append(out, Violation{Rule: rule.name, Package: p.Path, Text: text})
			}
		}
	}
	slices.SortFunc(out, func(a, b Violation) int { return strings.Compare(a.String(), b.String()) })
	return out
}

var rules = []struct {
	name  string
	check func(Package) []string
}{
	{"floors", checkFloors},
	{"roles", checkRoles},
	{"core", checkCore},
	{"client", checkClient},
	{"fences", checkFences},
	{"names", checkNames},
	{"doc", checkDoc},
	{"size", checkSize},
	{"tests", checkTests},
	{"services", checkServices},
}

// matches reports whether a path is the pattern, or below it when the pattern ends in "/...".
func matches(pattern, path string) bool {
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == tree || strings.HasPrefix(path, tree+"/")
	}
	return path == pattern
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}
