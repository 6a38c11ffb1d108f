//go:build !race

package dispatch

const underRace = false
