//go:build race

package extentlog

const underRace = true
