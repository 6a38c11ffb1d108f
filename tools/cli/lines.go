package cli

import (
	"bufio"
	"io"

	"github.com/columbamq/columba/core"
)

// splitter cuts input at a separator byte. It holds at most one line and its read buffer.
type splitter struct {
	r     *bufio.Reader
	sep   byte
	most  int
	spill []byte // a line longer than the read buffer
}

const readBuffer = 256 << 10

// newSplitter cuts r at sep into lines of at most most bytes.
func newSplitter(r io.Reader, sep byte, most int) *splitter {
	return &splitter{r: bufio.NewReaderSize(r, readBuffer), sep: sep, most: most}
}

// next is the next line without its separator, valid until the call after it. io.EOF ends the input; a last line need
// not end in a separator. A line that is too long is skipped and CodeTooLarge; the one after it can be read.
func (s *splitter) next() ([]byte, error) {
	line, err := s.r.ReadSlice(s.sep)
	if err == nil {
		return s.checked(line[:len(line)-1])
	}
	s.spill = s.spill[:0]
	length := 0
	for {
		length += len(line)
		if len(s.spill)+len(line) <= s.most+1 {
			s.spill = append(s.spill, line...)
		}
		if err != bufio.ErrBufferFull {
			break
		}
		line, err = s.r.ReadSlice(s.sep)
	}
	switch {
	case err == nil:
		length--
	case err != io.EOF:
		return nil, core.Errorf(core.CodeInternal, "input cannot be read: %w", err)
	case length == 0:
		return nil, io.EOF
	}
	if length > s.most {
		return nil, s.tooLong(length)
	}
	return s.spill[:length], nil
}

func (s *splitter) checked(line []byte) ([]byte, error) {
	if len(line) > s.most {
		return nil, s.tooLong(len(line))
	}
	return line, nil
}

func (s *splitter) tooLong(length int) error {
	return core.Errorf(core.CodeTooLarge, "line has %d bytes; no queue takes more than %d, and a queue has its own limit, see `columba show queue`", length, s.most)
}

// whole is all of r as one message.
func whole(r io.Reader, most int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "input cannot be read: %w", err)
	}
	if len(b) > most {
		return nil, core.Errorf(core.CodeTooLarge, "input has more than %d bytes; no queue takes more, and a queue has its own limit, see `columba show queue`", most)
	}
	return b, nil
}
