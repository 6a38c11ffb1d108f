package pebble

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// envHold makes the test binary a process that opens that directory, reads all names, and holds it until its input
// ends.
const envHold = "COLUMBA_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envHold); dir != "" {
		hold(dir)
		return
	}
	os.Exit(m.Run())
}

func hold(dir string) {
	s, err := Open(dir, 0, nil)
	if err != nil {
		os.Stdout.WriteString("failed: " + err.Error() + "\n")
		return
	}
	for _, err := range metadata.All[metadata.NameRecord](context.Background(), s, metadata.Names, metadata.PartitionPath, metadata.Serial) {
		if err != nil {
			os.Stdout.WriteString("failed: " + err.Error() + "\n")
			return
		}
	}
	os.Stdout.WriteString("open\n")
	io.Copy(io.Discard, os.Stdin)
	s.Close()
}

// startHolder starts such a process and waits until it has the directory; stop ends it.
func startHolder(t testing.TB, dir string) (pid int, stop func()) {
	t.Helper()
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), envHold+"="+dir)
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("holder says %q, %v", line, err)
	}
	return holder.Process.Pid, func() {
		in.Close()
		if err := holder.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

func wantOpenError(t *testing.T, disk vfs.FS, dir string, code core.Code, words ...string) {
	t.Helper()
	s, err := open(disk, dir, 0, nil)
	if err == nil {
		s.Close()
	}
	if core.CodeOf(err) != code {
		t.Fatalf("open %s: got %v, want code %q", dir, err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("open: %q does not say %q", err, word)
		}
	}
}

func TestOpen_LockedByAnotherProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "metadata")
	_, stop := startHolder(t, dir)
	wantOpenError(t, vfs.Default, dir, core.CodeLocked, "Cassandra", dir)
	stop()
	openTest(t, dir).Close()
}

func TestOpen_LockedByThisProcess(t *testing.T) {
	for name, disk := range map[string]vfs.FS{"disk": vfs.Default, "memory": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := disk.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			s, err := open(disk, dir, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantOpenError(t, disk, dir, core.CodeLocked, "Cassandra")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = open(disk, dir, 0, nil); err != nil {
				t.Fatalf("open after close: %v", err)
			}
			s.Close()
		})
	}
}

func TestOpen_MissingDirectory(t *testing.T) {
	wantOpenError(t, vfs.Default, filepath.Join(t.TempDir(), "no", "metadata"), core.CodeNotFound, "make it")
}

func TestOpen_NotADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, vfs.Default, file, core.CodeBadArgument, "not a directory")
	wantOpenError(t, vfs.Default, filepath.Join(file, "metadata"), core.CodeBadArgument, "not a directory")
}

// readOnly is a disk that is mounted read-only.
type readOnly struct{ vfs.FS }

func refused(name string) error { return &os.PathError{Op: "open", Path: name, Err: syscall.EROFS} }

func (readOnly) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused(name)
}
func (readOnly) MkdirAll(name string, _ os.FileMode) error { return refused(name) }
func (readOnly) Lock(name string) (io.Closer, error)       { return nil, refused(name) }

func TestOpen_ReadOnly(t *testing.T) {
	dir := t.TempDir()
	wantOpenError(t, readOnly{vfs.Default}, filepath.Join(dir, "new"), core.CodeReadOnly, "write")
	openTest(t, dir).Close()
	wantOpenError(t, readOnly{vfs.Default}, dir, core.CodeReadOnly, "write")
}

// TestOpen_OlderFormat: an older version must not open a store that this one has opened. It would not find the work
// hints.
func TestOpen_OlderFormat(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	if err := s.db.Set([]byte(formatKey), binary.BigEndian.AppendUint32(nil, formatVersion-1), engine.Sync); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = openTest(t, dir)
	defer s.Close()
	value, closer, err := s.db.Get([]byte(formatKey))
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	if got := binary.BigEndian.Uint32(value); got != formatVersion {
		t.Errorf("the store is marked with format %d, want %d", got, formatVersion)
	}
}

func TestOpen_NewerFormat(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	if err := s.db.Set([]byte(formatKey), binary.BigEndian.AppendUint32(nil, formatVersion+1), engine.Sync); err != nil {
		t.Fatal(err)
	}
	s.Close()
	wantOpenError(t, vfs.Default, dir, core.CodeNewerFormat, "newer version")
	wantOpenError(t, vfs.Default, dir, core.CodeNewerFormat) // the failed open left no lock behind
}

func TestOpen_NewerEngine(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir).Close()
	marks, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
	if err != nil || len(marks) != 1 {
		t.Fatalf("format marks: %v %v", marks, err)
	}
	if err := os.Rename(marks[0], filepath.Join(dir, "marker.format-version.000099.999")); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, vfs.Default, dir, core.CodeNewerFormat, "newer version")
}

// TestOpen_TableCutOff: no later try reads the rest of it.
func TestOpen_TableCutOff(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %v %v", tables, err)
	}
	if err := os.Truncate(tables[0], 10); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, vfs.Default, dir, core.CodeCorrupt, "is damaged")
}

func TestOpen_Damaged(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir).Close()
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("manifests: %v %v", manifests, err)
	}
	for _, m := range manifests {
		if err := os.Truncate(m, 3); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir, 0, nil)
	if err == nil {
		s.Close()
		t.Fatal("opened a damaged directory")
	}
	if code := core.CodeOf(err); code != core.CodeCorrupt && code != core.CodeUnavailable {
		t.Errorf("got code %q: %v", code, err)
	}
}
