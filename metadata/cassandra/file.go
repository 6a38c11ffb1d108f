package cassandra

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// The largest files that a URL may name, in bytes.
const (
	maxPassword     = 64 << 10
	maxCertificates = 1 << 20
)

// readFile reads a regular file of at most that many bytes. It never waits: a pipe is opened without its writer.
func readFile(path string, most int64) (_ []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file; name one")}
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d KiB; name the right file", most>>10)}
	}
	return text, nil
}
