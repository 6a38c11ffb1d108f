package frontend

import (
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
)

// fields are the names that an update gives of what changes; none: whatever is not zero.
type fields []string

// check refuses names that an update cannot change.
func (f fields) check(known ...string) error {
	for _, name := range f {
		if !slices.Contains(known, name) {
			return core.Errorf(core.CodeBadArgument, "field %q cannot be updated; these can: %s", name, strings.Join(known, ", "))
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
