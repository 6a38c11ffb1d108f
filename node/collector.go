package node

import (
	"os"
	"runtime/debug"
	"slices"
)

// controlPercent is the GOGC of a process that has no messages: what it allocates is rows of metadata that are read
// again and again, beside much that stays. Collecting twice as often costs it little, and halves the garbage.
const controlPercent = 50

// tuneCollector sets the collector's GOGC for a process with these roles, unless the environment has set it. It is a
// setting of the whole process until undo is called.
func tuneCollector(roles []string) (undo func()) {
	messages := slices.ContainsFunc(roles, func(r string) bool { return r == RoleStore || r == RoleInput || r == RoleOutput })
	if messages || os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(controlPercent)
	return func() { debug.SetGCPercent(before) }
}
