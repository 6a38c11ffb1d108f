package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
)

var someTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func openDir(t *testing.T, path string) *dataDir {
	t.Helper()
	d, err := openDataDir(t.Context(), path, someTime, nil)
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
	again, err := openDataDir(t.Context(), path, someTime.Add(time.Hour), nil)
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
	synctest.Test(t, func(t *testing.T) {
		d, began := openDir(t, path), time.Now()
		var waited []string
		_, err := openDataDir(t.Context(), path, someTime, func(dir, process string) { waited = append(waited, dir+" "+process) })
		if want := path + " " + strconv.Itoa(os.Getpid()); len(waited) != 1 || waited[0] != want {
			t.Errorf("it said that it waits for %q, want once %q", waited, want)
		}
		wantCode(t, "a second", err, core.CodeLocked, path+" is in use by process "+strconv.Itoa(os.Getpid())+"; stop that server, or choose another")
		if took := time.Since(began); took < lockWait || took > 2*lockWait {
			t.Errorf("it was refused after %s, want %s", took, lockWait)
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
		if err := openDir(t, path).close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDataDirOfADyingProcess: a killed process holds its lock until the operating system has taken its memory back.
func TestDataDirOfADyingProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	synctest.Test(t, func(t *testing.T) {
		dying := openDir(t, path)
		time.AfterFunc(time.Second, func() { dying.close() })
		d, err := openDataDir(t.Context(), path, someTime, nil)
		if err != nil {
			t.Fatalf("a second after the start the lock is free, and the start failed: %v", err)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDataDirThatCannotBe(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(t.Context(), filepath.Join(root, "no", "data"), someTime, nil)
	wantCode(t, "without a parent", err, core.CodeNotFound, filepath.Join(root, "no")+" does not exist")
	_, err = openDataDir(t.Context(), file, someTime, nil)
	wantCode(t, "a file", err, core.CodeBadArgument, "is a file")
	_, err = openDataDir(t.Context(), filepath.Join(file, "data"), someTime, nil)
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
	_, err := openDataDir(t.Context(), path, someTime, nil)
	wantCode(t, "read-only", err, core.CodeReadOnly, "write access")
}

func TestDataDirFullDisk(t *testing.T) {
	d := &dataDir{path: "/data"}
	wantCode(t, "full", d.fileError(fmt.Errorf("write: %w", syscall.ENOSPC)), core.CodeNoSpace, "free space")
	wantCode(t, "broken", d.fileError(errors.New("i/o error")), core.CodeUnavailable, "see to its disk")
}

// TestDataDirHostFileIsNoText has host.json be a file without an end, a pipe that nobody writes to, and a directory:
// each is refused at once.
func TestDataDirHostFileIsNoText(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"huge": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		},
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := t.TempDir()
		if err := make(filepath.Join(path, "host.json")); err != nil {
			t.Fatal(err)
		}
		opened := goer(func() error { _, err := openDataDir(t.Context(), path, someTime, nil); return err })
		select {
		case err := <-opened:
			wantCode(t, name, err, core.CodeCorrupt, "damaged")
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the server does not start and does not say why", name)
		}
	}
}

// goer runs f beside the test.
func goer(f func() error) <-chan error {
	out := make(chan error, 1)
	go func() { out <- f() }()
	return out
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
		"no id":   {`{"format": 1, "host": "h", "cluster": "00000000-0000-0000-0000-000000000000"}`, core.CodeCorrupt, "damaged"},
		"no form": {`{"host": "h"}`, core.CodeCorrupt, "names no host"},
		"huge":    {`{"format": 1, "host": "h", "x": "` + strings.Repeat("x", maxHostFile) + `"}`, core.CodeCorrupt, "damaged"},
	} {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, "host.json"), []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openDataDir(t.Context(), path, someTime, nil)
		wantCode(t, name, err, tc.code, tc.want)
		_, err = openDataDir(t.Context(), path, someTime, nil) // not "locked": the first has left nothing behind
		wantCode(t, name+" again", err, tc.code, tc.want)
	}
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(t.Context(), path, someTime, nil)
	wantCode(t, "messages without a host", err, core.CodeCorrupt, "host.json is missing")
}

// FuzzHostFile reads any text as host.json. An accepted text names a host, and is written as text that means the same.
func FuzzHostFile(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", "[]", `{"format": 1}`, `{"format": 1, "host": "h"}`, `{"format": -1, "host": "h"}`, `{"format": 1e3, "host": "h"}`,
		`{"format": 9223372036854775808}`, `{"format": 1, "format": 2, "host": "h"}`, `{"format": 1, "host": "../h"}`, `{"format": 1, "host": "h", "created": "0000-01-01T00:00:00Z"}`,
		`{"format": 1, "host": "h", "created": "2026-03-04T05:06:07Z", "cluster": "01a20a35-ab5c-7a03-a79a-c77ba8766258"}`,
		`{"FORMAT": 1, "Host": "h", "cluster": "01A20A35-AB5C-7A03-A79A-C77BA8766258"}`, strings.Repeat("[", 20000),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		host, err := parseHostFile(text, "/data/host.json")
		if err != nil {
			if code := core.CodeOf(err); code != core.CodeCorrupt && code != core.CodeNewerFormat {
				t.Fatalf("an error of code %s: %v", code, err)
			}
			return
		}
		if _, err := core.ParseHostID(string(host.Host)); err != nil || host.Format != hostFormat {
			t.Fatalf("host %q of format %d is taken", host.Host, host.Format)
		}
		if d := (&dataDir{host: host}); host.Cluster != "" && d.cluster().String() != host.Cluster {
			t.Fatalf("the host is of cluster %s, not %s as it says", d.cluster(), host.Cluster)
		}
		written, err := json.MarshalIndent(host, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseHostFile(written, "/data/host.json"); err != nil || again.Host != host.Host || again.Cluster != host.Cluster || !again.Created.Equal(host.Created) {
			t.Fatalf("%+v is written as %s, which is read as %+v: %v", host, written, again, err)
		}
	})
}
