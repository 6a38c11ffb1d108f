//go:build race

package underrace

// On: the race detector is on.
const On = true
