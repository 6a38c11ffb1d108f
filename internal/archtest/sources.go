package archtest

import (
	"fmt"
	"slices"
	"strings"
)

func checkNames(p Package) []string {
	for elem := range strings.SplitSeq(p.Path, "/") {
		if slices.Contains(badNames, elem) {
			return []string{fmt.Sprintf("%q says nothing about what is in it; name the noun it owns", elem)}
		}
	}
	if slices.Contains(badNames, p.Name) {
		return []string{fmt.Sprintf("package %s: the name says nothing about what is in it; name the noun it owns", p.Name)}
	}
	return nil
}

func checkDoc(p Package) []string {
	want := "Package " + p.Name + " "
	if p.Name == "main" {
		want = "Command "
	}
	var written int
	for _, s := range p.Sources {
		if s.Test || s.Generated {
			continue
		}
		written++
		if strings.HasPrefix(s.Doc, want) {
			return nil
		}
	}
	if written == 0 {
		return nil
	}
	return []string{fmt.Sprintf("has no package comment that begins with %q and says what it owns", want)}
}

func checkSize(p Package) []string {
	var out []string
	for _, s := range p.Sources {
		if !s.Generated && s.Lines > maxLines {
			out = append(out, fmt.Sprintf("%s has %d lines; at most %d are allowed, 400 is a good limit", s.File, s.Lines, maxLines))
		}
	}
	return out
}

func checkTests(p Package) []string {
	var out []string
	for _, s := range p.Sources {
		for _, use := range s.Sleeps {
			out = append(out, fmt.Sprintf("%s:%s: run the test in a synctest bubble, or wait for a condition with a deadline", s.File, use))
		}
		for _, use := range s.Ports {
			out = append(out, fmt.Sprintf("%s:%s: a fixed port may be taken; listen on port 0", s.File, use))
		}
	}
	return out
}

// checkServices keeps services without limits off the port. Tests make fakes as they like.
func checkServices(p Package) []string {
	var out []string
	for _, s := range p.Sources {
		for _, use := range s.Services {
			if !s.Test && !s.Generated {
				out = append(out, fmt.Sprintf("%s:%s: a service made like this has no limits; make it with serving.Handler", s.File, use))
			}
		}
	}
	return out
}
