package backlog

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/columbamq/columba/core"
)

// Order of a list of backlogs.
type Order string

const (
	ByBacklog Order = "backlog" // the largest first
	ByAge     Order = "age"     // the one with the oldest ready message first
	ByName    Order = "name"
)

// ParseOrder reads an order; empty is ByBacklog.
func ParseOrder(s string) (Order, error) {
	o := cmp.Or(Order(s), ByBacklog)
	if o != ByBacklog && o != ByAge && o != ByName {
		return "", core.Errorf(core.CodeBadArgument, "that order is not backlog, age or name")
	}
	return o, nil
}

// Place of a row in a list of backlogs. Its text is the token of the page after it.
type Place struct {
	Value       uint64 // ByBacklog: messages; ByAge: when the oldest ready one was published, µs, 0 is none; ByName: 0
	Path, Group string
}

// Compare places in an order. Those without a ready message are the last by age.
func (o Order) Compare(a, b Place) int {
	value := cmp.Compare(b.Value, a.Value)
	if o == ByAge { // the values are times
		value = cmp.Compare(a.Value-1, b.Value-1)
	}
	return cmp.Or(value, cmp.Compare(a.Path, b.Path), cmp.Compare(a.Group, b.Group))
}

// String is the form that ParsePlace reads.
func (p Place) String() string {
	return strconv.FormatUint(p.Value, 10) + " " + p.Path + " " + p.Group
}

// maxPlace is the length of the longest text of a place.
const maxPlace = 4096

// ParsePlace reads a page token; empty is the zero Place, the beginning.
func ParsePlace(s string) (p Place, err error) {
	if s == "" {
		return p, nil
	}
	parts := strings.Split(s, " ")
	if len(s) <= maxPlace && len(parts) == 3 {
		if p.Value, err = strconv.ParseUint(parts[0], 10, 64); err == nil {
			p.Path, p.Group = parts[1], parts[2]
			return p, nil
		}
	}
	return Place{}, core.Errorf(core.CodeBadArgument, "the page token is not one that this list has returned; leave it out to begin with the first page")
}
