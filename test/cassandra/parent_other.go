//go:build !linux

package cassandra

import "syscall"

// dieWithParent cannot be had here: a test that is killed leaves its node behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
