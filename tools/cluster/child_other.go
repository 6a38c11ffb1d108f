//go:build !linux

package main

import "syscall"

// childAttributes are of a process of the cluster. Only Linux can end it when this process is killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
