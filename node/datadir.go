package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/columbamq/columba/core"
)

// dataDir is the directory of a process, locked while it is open:
//
//	DIR/lock       held by the process that uses the directory; its text is that process's id
//	DIR/host.json  who the host is, and of which cluster: written at the first start, and once more when the cluster is met
//	DIR/metadata   the cluster's records, when they are embedded
//	DIR/metadata.moved  those that were copied to Cassandra, and that no server uses any more
//	DIR/store      the messages, on hosts with the store role
//	DIR/stores/N   directories of the same form, of the second and further store hosts of the process
type dataDir struct {
	path string
	host hostFile
	lock *os.File
}

// hostFile is host.json. A host keeps its id for ever: extents name it.
type hostFile struct {
	Format  int         `json:"format"`
	Host    core.HostID `json:"host"`
	Created time.Time   `json:"created"`
	Cluster string      `json:"cluster,omitempty"` // the id of the cluster whose metadata the host met first; "" before
}

// hostFormat is the version of the directory's layout that this build writes, and the highest that it reads.
const hostFormat = 1

// A process that was killed holds its lock until the operating system has taken its memory back, which takes a second
// or so when it was large: a start waits for that so long, and looks so often.
const (
	lockWait  = 3 * time.Second
	lockEvery = 50 * time.Millisecond
)

const maxHostFile = 64 << 10

func (d *dataDir) metadata() string { return filepath.Join(d.path, "metadata") }
func (d *dataDir) store() string    { return filepath.Join(d.path, "store") }

func (d *dataDir) movedMetadata() string { return filepath.Join(d.path, "metadata.moved") }

// extra is the directory of store host i of the process, from 2.
func (d *dataDir) extra(i int) string { return filepath.Join(d.path, "stores", strconv.Itoa(i)) }

// openDataDir makes the directory when its parent is there, locks it, for which it waits up to lockWait, and reads who
// the host is. CodeNotFound (no parent), CodeBadArgument (no directory), CodeReadOnly, CodeNoSpace, CodeLocked,
// CodeNewerFormat, CodeCorrupt. When it has to wait, waits (nil: nobody) hears for which process.
func openDataDir(ctx context.Context, path string, now time.Time, waits func(dir, process string)) (_ *dataDir, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, core.Errorf(core.CodeBadArgument, "data directory %s: %w", path, err)
	}
	d := &dataDir{path: abs}
	if err := d.make(); err != nil {
		return nil, err
	}
	if err := d.acquire(ctx, waits); err != nil {
		return nil, err
	}
	if err := d.identify(now); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := d.tighten(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// tighten closes what a server of before, or an operator's copy, has left open to other users. The directory itself may
// be the operator's and stays as it is: nobody else gets beyond these entries.
func (d *dataDir) tighten() error {
	for _, path := range []string{d.lock.Name(), filepath.Join(d.path, "host.json"), d.metadata(), d.store(), filepath.Dir(d.extra(2))} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(path, info.Mode().Perm()&^0o077)
		}
		if err != nil {
			return d.fileError(err)
		}
	}
	return nil
}

// close gives the lock back. The file stays: removing it could unlock a directory twice.
func (d *dataDir) close() error { return d.lock.Close() }

func (d *dataDir) make() error {
	info, err := os.Stat(d.path)
	switch {
	case err == nil && !info.IsDir():
		return core.Errorf(core.CodeBadArgument, "data directory %s is a file; choose another with --data", d.path)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return d.fileError(err)
	}
	parent := filepath.Dir(d.path)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return core.Errorf(core.CodeNotFound, "data directory %s cannot be made: %s does not exist; make it, mount its disk, or choose another with --data", d.path, parent)
	}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return d.fileError(err)
	}
	if err := syncDir(parent); err != nil {
		return d.fileError(err)
	}
	return nil
}

func (d *dataDir) acquire(ctx context.Context, waits func(dir, process string)) error {
	f, err := os.OpenFile(filepath.Join(d.path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return d.fileError(err)
	}
	owner := func() string { // for texts only
		text := make([]byte, 20)
		n, _ := f.ReadAt(text, 0)
		return strings.TrimSpace(string(text[:n]))
	}
	if err := lockFile(ctx, f, func() {
		if waits != nil {
			waits(d.path, owner())
		}
	}); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return d.fileError(err)
		}
		return core.Errorf(core.CodeLocked, "data directory %s is in use by process %s; stop that server, or choose another directory with --data", d.path, owner())
	}
	// The process id in the file is for people to read; the lock works without it.
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Appendf(nil, "%d\n", os.Getpid()))); err != nil {
		return errors.Join(d.fileError(err), f.Close())
	}
	d.lock = f
	return nil
}

// lockFile locks f for this process alone; EWOULDBLOCK when another still has it at the end of the wait. It calls waits
// once, when another process has it.
func lockFile(ctx context.Context, f *os.File, waits func()) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if first {
			waits()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lockEvery):
		}
	}
}

func writeAt(f *os.File, b []byte) error {
	_, err := f.WriteAt(b, 0)
	return err
}

// identify reads host.json, or mints it in a new directory.
func (d *dataDir) identify(now time.Time) error {
	path := filepath.Join(d.path, "host.json")
	text, err := readHostFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.mint(path, now)
	}
	if err != nil {
		return d.fileError(err)
	}
	d.host, err = parseHostFile(text, path)
	return err
}

// readHostFile reads no more than is needed to see that a file is too long. Anything but a regular file, such as a
// pipe, has no text.
func readHostFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxHostFile+1))
}

// parseHostFile reads the text of host.json, which was at path: CodeCorrupt, CodeNewerFormat.
func parseHostFile(text []byte, path string) (hostFile, error) {
	var version struct { // first and alone: a newer format may have changed everything else
		Format int `json:"format"`
	}
	damaged := core.Errorf(core.CodeCorrupt, "%s is damaged; restore it from a copy, it says which host this is", path)
	if len(text) > maxHostFile || json.Unmarshal(text, &version) != nil {
		return hostFile{}, damaged
	}
	if version.Format > hostFormat {
		return hostFile{}, core.Errorf(core.CodeNewerFormat, "data directory %s has format %d, this version reads up to %d; use the version of columba that wrote it, or a later one",
			filepath.Dir(path), version.Format, hostFormat)
	}
	var host hostFile
	if json.Unmarshal(text, &host) != nil {
		return hostFile{}, damaged
	}
	if host.Cluster != "" {
		id, err := core.ParseID(host.Cluster)
		if err != nil || id.IsZero() {
			return hostFile{}, damaged
		}
		host.Cluster = id.String() // by which join compares
	}
	if _, err := core.ParseHostID(string(host.Host)); err != nil || host.Format < 1 {
		return hostFile{}, core.Errorf(core.CodeCorrupt, "%s names no host; restore it from a copy, it says which host this is", path)
	}
	return host, nil
}

func (d *dataDir) mint(path string, now time.Time) error {
	for _, dir := range []string{d.metadata(), d.store(), filepath.Dir(d.extra(2))} {
		if _, err := os.Stat(dir); err == nil {
			return core.Errorf(core.CodeCorrupt, "%s is missing but %s is there; restore it from a copy, it says which host this is", path, dir)
		}
	}
	id := core.NewID(now).String()
	d.host = hostFile{Format: hostFormat, Host: core.HostID("host-" + id[len(id)-12:]), Created: now.UTC()}
	return d.writeHost()
}

// writeHost makes host.json what is known of the host, durably.
func (d *dataDir) writeHost() error {
	path := filepath.Join(d.path, "host.json")
	text, err := json.MarshalIndent(d.host, "", "  ")
	if err != nil {
		return core.Errorf(core.CodeInternal, "write %s: %w", path, err)
	}
	if err := replaceFile(path, append(text, '\n')); err != nil {
		return d.fileError(err)
	}
	return nil
}

// cluster is the id of the cluster that the host belongs to; zero: it has met none.
func (d *dataDir) cluster() core.ID {
	id, _ := core.ParseID(d.host.Cluster) // identify has checked it
	return id
}

// join makes the host one of a cluster, for good.
func (d *dataDir) join(cluster core.ID) error {
	if d.host.Cluster == cluster.String() {
		return nil
	}
	if d.host.Cluster != "" {
		return core.Errorf(core.CodeConflict, "data directory %s belongs to cluster %s and not to %s", d.path, d.host.Cluster, cluster)
	}
	d.host.Cluster = cluster.String()
	return d.writeHost()
}

// checkMetadata refuses to begin with no records at all beside a store that has messages: they would belong to nobody.
func (d *dataDir) checkMetadata() error {
	if _, err := os.Stat(d.metadata()); !errors.Is(err, fs.ErrNotExist) {
		return nil // whether it can be read is for its opener to say
	}
	if _, err := os.Stat(d.movedMetadata()); err == nil {
		return core.Errorf(core.CodeConflict, "the metadata of data directory %s were copied to Cassandra; start the server with --metadata cassandra://…, "+
			"or take the copy back with `columba metadata copy --undo`", d.path)
	}
	if _, err := os.Stat(d.store()); err != nil {
		return nil
	}
	return core.Errorf(core.CodeCorrupt, "%s is missing but %s is there: the metadata are lost, or the directory is of a store without the role controller; "+
		"restore them or mount their disk, leave controller out of --roles, or choose another directory with --data", d.metadata(), d.store())
}

// refuseEmbedded refuses to begin with metadata in Cassandra in a directory that has metadata of its own.
func (d *dataDir) refuseEmbedded() error {
	_, err := os.Stat(d.metadata())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return d.fileError(err)
	}
	return core.Errorf(core.CodeConflict, "data directory %s holds the metadata of a cluster, and --metadata names others; leave that flag out, "+
		"copy them with `columba metadata copy`, or choose another directory with --data", d.path)
}

// rename gives a directory another name, for good.
func (d *dataDir) rename(from, to string) error {
	err := os.Rename(from, to)
	if err == nil {
		err = syncDir(d.path)
	}
	if err != nil {
		return d.fileError(err)
	}
	return nil
}

// replaceFile makes text the content of path at once and for good: after a crash path holds the old content or the new.
func replaceFile(path string, text []byte) error {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// fileError puts an error of the file system into the catalogue.
func (d *dataDir) fileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return core.Errorf(core.CodeReadOnly, "data directory %s cannot be written: %w; give this user write access, mount it writable, or choose another with --data", d.path, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return core.Errorf(core.CodeNoSpace, "data directory %s: %w; free space on its disk, or choose another with --data", d.path, err)
	case errors.Is(err, syscall.ENOTDIR):
		return core.Errorf(core.CodeBadArgument, "data directory %s: %w; choose another with --data", d.path, err)
	}
	return core.Errorf(core.CodeUnavailable, "data directory %s: %w; see to its disk, or choose another with --data", d.path, err)
}
