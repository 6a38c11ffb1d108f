// Package faults tests real servers that are killed under load: what was acknowledged is never lost.
package faults

import (
	"os"
	"testing"

	"github.com/columbamq/columba/test/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }
