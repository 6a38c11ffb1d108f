package main

import "syscall"

// childAttributes are of a process that ends with this one. It is started by the main thread, as Linux sends the signal
// when the thread ends that started the process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
