package frontend

import (
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
)

// fields are the names that an update gives of what changes; none: whatever is not zero.
type fields []string

// check refuses names that an update cannot change, or that stand there twice: the audit keeps what an update names.
func (f fields) check(known ...string) error {
	for i, name := range f {
		switch {
		case !slices.Contains(known, name):
			return core.Errorf(core.CodeBadArgument, "field %.80q cannot be updated; these can: %s", name, strings.Join(known, ", "))
		case slices.Contains(f[:i], name):
			return core.Errorf(core.CodeBadArgument, "field %q is named twice; name each field once", name)
		}
	}
	return nil
}

// change sets *v when the update names its field, or names none and gives it a value that is not zero.
func change[T comparable](f fields, name string, v *T, to T) {
	switch {
	case len(f) == 0:
		set(v, to)
	case slices.Contains(f, name):
		*v = to
	}
}
