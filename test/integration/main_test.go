// Package integration tests what a group promises – locks, attempts, delays, dead letters, starts – on real servers,
// each promise also across a kill -9.
package integration

import (
	"flag"
	"os"
	"testing"

	"github.com/columbamq/columba/test/process"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil { // they mostly wait for locks and delays
		panic(err)
	}
	os.Exit(process.Main(m))
}
