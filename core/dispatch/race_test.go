//go:build race

package dispatch

const underRace = true
