package netmem

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// Conn is one end of a pipe. Safe for concurrent use; Writes at the same time may mix when they do not fit into the
// buffer.
type Conn struct {
	addr Addr
	in   *buffer
	out  *buffer
}

var _ net.Conn = (*Conn)(nil)

// Pipe makes two connected ends. Each direction holds up to BufferSize bytes that were written and not yet read.
func Pipe(addr Addr) (net.Conn, net.Conn) {
	a, b := newBuffer(), newBuffer()
	return &Conn{addr: addr, in: a, out: b}, &Conn{addr: addr, in: b, out: a}
}

// Read waits for bytes, the end (io.EOF after the peer's Close), its own Close (net.ErrClosed) or the read deadline.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write waits for room until all of p is taken, the peer is closed (io.ErrClosedPipe), its own Close or the write
// deadline.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

// wrap leaves io.EOF bare, as io.Reader wants.
func (c *Conn) wrap(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: c.addr.Network(), Addr: c.addr, Err: err}
}

// Close ends both directions: the peer may still read what was written before. Only the first call returns nil.
func (c *Conn) Close() error {
	first := c.out.closeWrite()
	c.in.closeRead()
	if !first {
		return c.wrap("close", net.ErrClosed)
	}
	return nil
}

// Hold keeps what the peer writes, and its Close, from arriving at this end until it is called with false, as a network
// that loses every packet does. The peer can write until its buffer is full.
func (c *Conn) Hold(held bool) { c.in.hold(held) }

// Reset ends both directions for both ends at once; what is under way is lost. Reads and Writes fail with
// syscall.ECONNRESET.
func (c *Conn) Reset() {
	c.in.breakOff()
	c.out.breakOff()
}

// LocalAddr and RemoteAddr are the listener's.
func (c *Conn) LocalAddr() net.Addr  { return c.addr }
func (c *Conn) RemoteAddr() net.Addr { return c.addr }

// SetDeadline sets both deadlines; the zero time means none.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline ends Reads, those already waiting too, at t with os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.wrap("set", c.in.setReadDeadline(t))
}

// SetWriteDeadline ends Writes, those already waiting too, at t with os.ErrDeadlineExceeded.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.wrap("set", c.out.setWriteDeadline(t))
}

// deadline of one side of a buffer. Its owner's mutex guards it.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// set arms the deadline; expired is called on a goroutine of its own when it passes, and perhaps once too often. For a
// deadline already past it is not called: the owner wakes who waits after every set.
//
// No timer is armed in the past, as net/http does with every request: a synctest bubble runs such a timer on the
// caller's thread, and two at once corrupt the race detector (go.dev/issue/78156).
func (d *deadline) set(t time.Time, expired func()) {
	d.at = t
	d.stop()
	if t.IsZero() {
		return
	}
	switch wait := time.Until(t); {
	case wait <= 0:
	case d.timer == nil:
		d.timer = time.AfterFunc(wait, expired)
	default:
		d.timer.Reset(wait)
	}
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *deadline) err() error {
	if !d.at.IsZero() && !time.Now().Before(d.at) {
		return os.ErrDeadlineExceeded
	}
	return nil
}
