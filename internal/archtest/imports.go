package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// external reports whether an import path is not of the standard library: its first element has a dot. The paths of
// this module have none, once they are relative.
func external(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return strings.Contains(first, ".")
}

// floorOf is the floor of a package of this module; ok is false for other imports and for trees without a row.
func floorOf(path string) (floor int, ok bool) {
	longest := -1
	for _, row := range floors {
		if matches(row.tree, path) && len(row.tree) > longest {
			floor, longest = row.floor, len(row.tree)
		}
	}
	return floor, longest >= 0
}

// all is what a package and its tests import, each once.
func all(p Package) []string {
	imports := slices.Concat(p.Imports, p.TestImports)
	slices.Sort(imports)
	return slices.Compact(imports)
}

func checkFloors(p Package) []string {
	mine, ok := floorOf(p.Path)
	if !ok {
		return []string{"its folder has no floor; put it below one that has, or give it a row in internal/archtest/tables.go"}
	}
	var out []string
	for _, imp := range all(p) {
		theirs, ok := floorOf(imp)
		if !ok || theirs < mine || matches(p.Path+"/...", imp) || roleOf(p.Path) != "" && roleOf(imp) != "" {
			continue // other modules have their fences, roles their own rule
		}
		if exceptionFor(p.Path, imp) < 0 {
			out = append(out, fmt.Sprintf("on floor %d imports %s of floor %d; import lower floors and own children only", mine, imp, theirs))
		}
	}
	return out
}

// exceptionFor is the row that lets from import to, or -1.
func exceptionFor(from, to string) int {
	return slices.IndexFunc(exceptions, func(e exception) bool { return matches(e.from, from) && matches(e.to, to) })
}

// staleExceptions are the rows whose package is there but which no import needs any more. Commands and test suites, on
// the top floor, come and go: their rows are let be.
func staleExceptions(pkgs []Package) []string {
	there, used := make([]bool, len(exceptions)), make([]bool, len(exceptions))
	for _, p := range pkgs {
		for i, e := range exceptions {
			there[i] = there[i] || matches(e.from, p.Path)
		}
		for _, imp := range all(p) {
			if i := exceptionFor(p.Path, imp); i >= 0 {
				used[i] = true
			}
		}
	}
	var out []string
	for i, e := range exceptions {
		if floor, _ := floorOf(strings.TrimSuffix(e.from, "/...")); there[i] && !used[i] && floor < topFloor {
			out = append(out, fmt.Sprintf("%s may import %s (%s), but nothing does: remove the row", e.from, e.to, e.reason))
		}
	}
	return out
}

// roleOf is the role whose tree a package is in, or "".
func roleOf(path string) string {
	top, _, _ := strings.Cut(path, "/")
	if slices.Contains(roles, top) {
		return top
	}
	return ""
}

func checkRoles(p Package) []string {
	mine := roleOf(p.Path)
	if mine == "" {
		return nil
	}
	var out []string
	for _, imp := range all(p) {
		theirs := roleOf(imp)
		switch {
		case theirs != "" && theirs != mine:
			out = append(out, fmt.Sprintf("role %s imports role %s (%s); roles meet through internal/peer or metadata", mine, theirs, imp))
		case theirs == mine && !matches(p.Path+"/...", imp) && !matches(imp+"/...", p.Path) && !strings.HasSuffix(imp, "test") && exceptionFor(p.Path, imp) < 0:
			out = append(out, fmt.Sprintf("imports its sibling %s; let their parent connect them", imp))
		}
	}
	return out
}

func checkCore(p Package) []string {
	if !matches("core/...", p.Path) {
		return nil
	}
	var out []string
	for _, imp := range p.Imports {
		if external(imp) || !matches("core/...", imp) && isOurs(imp) {
			out = append(out, fmt.Sprintf("imports %s; core uses the standard library only", imp))
		}
	}
	for _, s := range p.Sources {
		if !s.Test {
			for _, use := range s.Clock {
				out = append(out, fmt.Sprintf("%s:%s: core reads no clock; take the time as an argument", s.File, use))
			}
		}
	}
	return out
}

// isOurs reports whether an import is of this module.
func isOurs(imp string) bool {
	_, ok := floorOf(imp)
	return ok
}

func checkClient(p Package) []string {
	if !matches("client/...", p.Path) || matches(clientTest, p.Path) {
		return nil
	}
	var out []string
	for _, imp := range p.Imports {
		if isOurs(imp) && !matchesAny(clientAllowed, imp) || matches(clientTest, imp) {
			out = append(out, fmt.Sprintf("imports %s; the client takes api, wire, core, internal/publish and leaf helpers only", imp))
		}
	}
	for _, dep := range p.Deps {
		if matchesAny(clientBanned, dep) {
			out = append(out, fmt.Sprintf("drags %s into the users' builds", dep))
		}
	}
	return out
}

func checkFences(p Package) []string {
	var out []string
	for _, imp := range all(p) {
		for _, f := range fences {
			if matches(f.library, imp) && !matchesAny(f.allowed, p.Path) {
				out = append(out, fmt.Sprintf("imports %s, which belongs in %s: %s", imp, where(f.allowed), f.reason))
			}
		}
	}
	return out
}

func where(allowed []string) string {
	if len(allowed) == 0 {
		return "no package"
	}
	return strings.ReplaceAll(strings.Join(allowed, ", "), "/...", "")
}
