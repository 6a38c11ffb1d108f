package intake

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/columbamq/columba/core"
)

// arrival is one body on its way.
type arrival struct {
	body    *Body
	from    io.ReadCloser
	control *http.ResponseController
	input   protoreflect.MessageDescriptor
	form    form
	arrived int64
	head    int // bytes of the whole body before its message
}

// read returns the whole body, unpacked; the budget holds its bytes and what it becomes when it is decoded.
func (a *arrival) read(r *http.Request) ([]byte, error) {
	ctx := r.Context()
	kind, f, known := formOf(r.Header.Get("Content-Type"))
	if !known {
		return nil, errForm
	}
	a.form = f
	r.Header.Set("Content-Type", kind)
	wire := io.Reader(&clocked{a})
	length := r.ContentLength
	if length > a.most() {
		return nil, a.tooLarge(length)
	}
	var head []byte
	switch packed := r.Header.Get("Content-Encoding"); {
	case f.enveloped:
		if err := a.body.grow(ctx, small, envelopeHead); err != nil {
			return nil, err
		}
		a.body.begin()
		head = make([]byte, envelopeHead)
		if n, err := io.ReadFull(wire, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return head[:n], nil // the library says what is wrong with it
		} else if err != nil {
			return nil, a.broken(err)
		}
		length = int64(binary.BigEndian.Uint32(head[1:]))
		if length > a.most() {
			return nil, a.tooLarge(length)
		}
		if head[0]&1 != 0 {
			if !packedBy(r.Header.Get("Grpc-Encoding"), r.Header.Get("Connect-Content-Encoding")) {
				return nil, errPacking
			}
			wire, head[0], length = &unpacking{from: io.LimitReader(wire, length)}, head[0]&^1, -1
		} else {
			wire = io.MultiReader(io.LimitReader(wire, length), onlyOne{wire})
		}
	case packed == "" || packed == "identity":
	case packed == "gzip":
		r.Header.Del("Content-Encoding")
		wire, length = &unpacking{from: wire}, -1
	default:
		return nil, errPacking
	}
	a.head = len(head)
	whole, err := a.buffer(ctx, wire, length, head)
	if err != nil {
		return nil, err
	}
	if f.enveloped {
		if length >= 0 && int64(len(whole)-envelopeHead) != length {
			return nil, core.Errorf(core.CodeBadArgument, "the request has %d bytes, its head says %d", len(whole)-envelopeHead, length)
		}
		binary.BigEndian.PutUint32(whole[1:], uint32(len(whole)-envelopeHead))
	}
	return whole, nil
}

// envelopeHead is what is before a message of gRPC: a flag and the length.
const envelopeHead = 5

var errPacking = core.Errorf(core.CodeUnsupported, "the request is compressed by something other than gzip; send it as it is, or by gzip")

func packedBy(encodings ...string) bool {
	for _, e := range encodings {
		if e == "gzip" {
			return true
		}
	}
	return false
}

func (a *arrival) most() int64 { return a.body.b.limits.Body }

func (a *arrival) tooLarge(n int64) error {
	return core.Errorf(core.CodeTooLarge, "the request has %d bytes or more, at most %d are taken; send it in several", n, a.most())
}

// buffer reads all of wire behind head. A length that is known is reserved before the first byte is read; one that is
// not, as the buffer grows.
func (a *arrival) buffer(ctx context.Context, wire io.Reader, length int64, head []byte) ([]byte, error) {
	room := int64(firstBuffer)
	if length >= 0 {
		room = length + int64(len(head)) + 1 // with room for the end to be seen
	}
	if err := a.body.grow(ctx, classOf(room), room); err != nil {
		return nil, err
	}
	if len(head) == 0 {
		a.body.begin()
	}
	// A client says any length. Memory is given for it when the first bytes are there.
	buf := append(make([]byte, 0, min(room, SmallBody)), head...)
	for {
		n, err := wire.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch ended := errors.Is(err, io.EOF); {
		case int64(len(buf)-len(head)) > a.most():
			return nil, a.tooLarge(int64(len(buf) - len(head)))
		case ended:
			return buf, nil
		case err != nil:
			return nil, a.broken(err)
		}
		if len(buf) < cap(buf) {
			continue
		}
		if int64(cap(buf)) < room {
			buf = append(make([]byte, 0, room), buf...)
			continue
		}
		more := min(room, a.most()+envelopeHead+1-room)
		if err := a.body.grow(ctx, classOf(room+more), more); err != nil {
			return nil, err
		}
		room += more
		buf = append(make([]byte, 0, room), buf...)
	}
}

// firstBuffer is for bodies whose length is not known.
const firstBuffer = 4 << 10

func classOf(n int64) class {
	if n <= SmallBody {
		return small
	}
	return large
}

// broken says why the arrival ended early.
func (a *arrival) broken(err error) error {
	var timeout interface{ Timeout() bool }
	var tooMuch *http.MaxBytesError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return errSlow
	case errors.As(err, &tooMuch):
		return a.tooLarge(tooMuch.Limit)
	case core.CodeOf(err) != core.CodeInternal:
		return err
	}
	return core.Errorf(core.CodeBadArgument, "the request's body cannot be read: %w", err)
}

// clocked reads from the network, each time with the deadline that the bytes so far allow.
type clocked struct{ a *arrival }

func (c *clocked) Read(p []byte) (int, error) {
	_ = c.a.control.SetReadDeadline(c.a.body.deadline())
	if c.a.body.isCut() { // meanwhile: the deadline of the cut may have come before that one
		c.a.body.cut()
	}
	n, err := c.a.from.Read(p)
	c.a.arrived += int64(n)
	c.a.body.progress(n)
	return n, err
}

// onlyOne is the end of a request with one message; whatever comes behind it is an error.
type onlyOne struct{ wire io.Reader }

func (o onlyOne) Read([]byte) (int, error) {
	var b [1]byte
	if n, err := o.wire.Read(b[:]); n == 0 {
		return 0, err
	}
	return 0, core.Errorf(core.CodeBadArgument, "the request holds more than one message")
}

// unpacking reads gzip. Its header is read with the first bytes, not before there is room for them.
type unpacking struct {
	from io.Reader
	zip  *gzip.Reader
}

func (u *unpacking) Read(p []byte) (int, error) {
	if u.zip == nil {
		zip, err := gzip.NewReader(u.from)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("unpack: %w", err)
		}
		u.zip = zip
	}
	runtime.Gosched() // unpacking never waits, and would keep the processor from who does
	return u.zip.Read(p)
}

// wholeBody gives the bytes to whoever decodes them, and lets go of them then.
type wholeBody struct{ left []byte }

func (b *wholeBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		b.left = nil
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *wholeBody) Close() error { b.left = nil; return nil }
