package cassandra

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/columbamq/columba/core"
)

// A device has no end, and a pipe may never have a writer: reading one must neither end nor hang the process.
func TestParseURL_ReadsRegularFilesUpToABound(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct{ option, file, text string }{
		{"password-file", pipe, "not a regular file"},
		{"password-file", "/dev/null", "not a regular file"},
		{"password-file", dir, "not a regular file"},
		{"password-file", large("password", maxPassword+1), "larger than 64 KiB"},
		{"tls", pipe, "not a regular file"},
		{"tls", "/dev/null", "not a regular file"},
		{"tls", large("certificates", maxCertificates+1), "larger than 1024 KiB"},
	} {
		_, err := ParseURL("cassandra://me@a/x?" + tc.option + "=" + tc.file)
		if core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), tc.file) {
			t.Errorf("%s=%s: got %v, want %q and the name of the file", tc.option, tc.file, err, tc.text)
		}
	}
	cfg, err := ParseURL("cassandra://me@a/x?password-file=" + large("most", maxPassword))
	if err != nil || len(cfg.Password) != maxPassword {
		t.Errorf("password of %d bytes: got %d bytes, %v", maxPassword, len(cfg.Password), err)
	}
}
