package cassandra

import (
	"bytes"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const stopTime = 20 * time.Second // from the request to end to SIGKILL

// process is a child that ends with its parent.
type process struct {
	out   bytes.Buffer // what it wrote; to be read after ended
	stop  chan syscall.Signal
	ended chan struct{}
}

// spawn starts a child of a thread that lives as long as the child. The kernel kills the child when that thread ends,
// and so when this process does.
func spawn(name string, args ...string) (*process, error) {
	p := &process{stop: make(chan syscall.Signal, 1), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		runtime.LockOSThread()
		child := exec.Command(name, args...)
		child.Stdout, child.Stderr = &p.out, &p.out
		child.SysProcAttr = dieWithParent()
		err := child.Start()
		started <- err
		if err == nil {
			p.watch(child)
		}
	}()
	return p, <-started
}

// watch returns when the child has ended.
func (p *process) watch(child *exec.Cmd) {
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
	}
	select {
	case <-exited:
	case <-time.After(stopTime):
		child.Process.Kill()
		<-exited
	}
}

// end sends the signal to the child, unless it has ended, and waits for its end.
func (p *process) end(how syscall.Signal) {
	select {
	case p.stop <- how:
	default: // it is being ended
	}
	<-p.ended
}
