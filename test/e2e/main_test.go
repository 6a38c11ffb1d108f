// Package e2e tests the built binary: the command line against a real server process.
package e2e

import (
	"os"
	"testing"

	"github.com/columbamq/columba/test/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }
