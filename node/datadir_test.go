package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

var someTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func openDir(t *testing.T, path string) *dataDir {
	t.Helper()
	d, err := openDataDir(path, someTime)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wantCode(t *testing.T, what string, err error, code core.Code, text string) {
	t.Helper()
	if core.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v (%s), want %s with %q", what, err, core.CodeOf(err), code, text)
	}
}

func TestDataDirKeepsTheHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := openDir(t, path)
	if _, err := core.ParseHostID(string(d.host.Host)); err != nil || !d.host.Created.Equal(someTime) || d.host.Format != hostFormat {
		t.Errorf("a new host: got %+v, %v", d.host, err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openDataDir(path, someTime.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if again.host != d.host {
		t.Errorf("opened again: got %+v, want %+v", again.host, d.host)
	}
	if left, _ := filepath.Glob(filepath.Join(path, "*.new")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDataDirServesOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := openDir(t, path)
	_, err := openDataDir(path, someTime)
	wantCode(t, "a second", err, core.CodeLocked, path+" is in use by process "+strconv.Itoa(os.Getpid())+"; stop that server, or choose another")
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if err := openDir(t, path).close(); err != nil {
		t.Error(err)
	}
}

func TestDataDirThatCannotBe(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(filepath.Join(root, "no", "data"), someTime)
	wantCode(t, "without a parent", err, core.CodeNotFound, filepath.Join(root, "no")+" does not exist")
	_, err = openDataDir(file, someTime)
	wantCode(t, "a file", err, core.CodeBadArgument, "is a file")
	_, err = openDataDir(filepath.Join(file, "data"), someTime)
	wantCode(t, "below a file", err, core.CodeBadArgument, "choose another with --data")
}

func TestDataDirReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		// The superuser may write everywhere: only the mapping of what others get is checked.
		d := &dataDir{path: "/data"}
		for _, cause := range []error{fs.ErrPermission, syscall.EROFS, syscall.EACCES} {
			wantCode(t, cause.Error(), d.fileError(&fs.PathError{Op: "open", Path: "/data/lock", Err: cause}), core.CodeReadOnly, "write access")
		}
		return
	}
	path := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(path, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(path, someTime)
	wantCode(t, "read-only", err, core.CodeReadOnly, "write access")
}

func TestDataDirFullDisk(t *testing.T) {
	d := &dataDir{path: "/data"}
	wantCode(t, "full", d.fileError(fmt.Errorf("write: %w", syscall.ENOSPC)), core.CodeNoSpace, "free space")
	wantCode(t, "broken", d.fileError(errors.New("i/o error")), core.CodeUnavailable, "see to its disk")
}

func TestDataDirDamagedOrNewer(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		code core.Code
		want string
	}{
		"newer":   {`{"format": 2, "host": {"id": "of another kind"}}`, core.CodeNewerFormat, "has format 2"},
		"newer 2": {`{"format": 2, "host": "h", "more": true}`, core.CodeNewerFormat, "has format 2, this version reads up to 1"},
		"empty":   {``, core.CodeCorrupt, "damaged"},
		"no host": {`{"format": 1}`, core.CodeCorrupt, "names no host"},
		"no form": {`{"host": "h"}`, core.CodeCorrupt, "names no host"},
		"huge":    {`{"format": 1, "host": "h", "x": "` + strings.Repeat("x", maxHostFile) + `"}`, core.CodeCorrupt, "damaged"},
	} {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, "host.json"), []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openDataDir(path, someTime)
		wantCode(t, name, err, tc.code, tc.want)
		_, err = openDataDir(path, someTime) // not "locked": the first has left nothing behind
		wantCode(t, name+" again", err, tc.code, tc.want)
	}
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(path, someTime)
	wantCode(t, "messages without a host", err, core.CodeCorrupt, "host.json is missing")
}
