package cli

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipe is the writing end of a pipe, of which can be seen what its reader does.
type pipe struct{ conn syscall.RawConn }

// pipeOf is nil for what is not a pipe.
func pipeOf(v any) *pipe {
	f, ok := v.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return &pipe{conn}
}

// unread is how many bytes the reader has not taken; false: that cannot be told.
func (p *pipe) unread() (n int, ok bool) {
	err := p.conn.Control(func(fd uintptr) {
		var err error
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		ok = err == nil
	})
	return n, ok && err == nil
}

// broken reports whether there is no reader any more.
func (p *pipe) broken() (gone bool) {
	p.conn.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(fds, 0)
		gone = err == nil && fds[0].Revents&unix.POLLERR != 0
	})
	return gone
}
