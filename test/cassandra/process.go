package cassandra

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const stopTime = time.Minute // from the request to end to SIGKILL; Cassandra takes 5 s for it

// child is a process that ends with its parent.
type child struct {
	out   bytes.Buffer // what it wrote; to be read after ended
	child *os.Process
	stop  chan syscall.Signal
	ended chan struct{}
}

// spawn starts a child of a thread that lives as long as the child. The kernel kills the child when that thread ends,
// and so when this process does.
func spawn(name string, args ...string) (*child, error) {
	p := &child{stop: make(chan syscall.Signal, 1), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		runtime.LockOSThread()
		child := exec.Command(name, args...)
		child.Stdout, child.Stderr = &p.out, &p.out
		child.SysProcAttr = dieWithParent()
		err := child.Start()
		p.child = child.Process
		started <- err
		if err == nil {
			p.watch(child)
		}
	}()
	return p, <-started
}

// watch returns when the child has ended.
func (p *child) watch(child *exec.Cmd) {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		child.Wait()
	}()
	select {
	case <-exited:
		return
	case how := <-p.stop:
		child.Process.Signal(how)
		child.Process.Signal(syscall.SIGCONT) // it may be paused, and would not hear of the other signal
	}
	select {
	case <-exited:
	case <-time.After(stopTime):
		child.Process.Kill()
		<-exited
	}
}

// signal sends a signal to the child that does not end it, unless it has ended.
func (p *child) signal(s syscall.Signal) { p.child.Signal(s) }

// end sends the signal to the child, unless it has ended, and waits for its end.
func (p *child) end(how syscall.Signal) {
	select {
	case p.stop <- how:
	default: // it is being ended
	}
	<-p.ended
}
