package node

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/cassandra"
	"github.com/columbamq/columba/metadata/migration"
	"github.com/columbamq/columba/metadata/pebble"
)

// CopyMetadata copies the embedded metadata of a stopped cluster into the keyspace that a URL names, and compares them.
// Then it renames their directory, so that no server uses them any more. After an interruption it is called again, and
// goes on. Errors: CodeNotFound (data has no metadata), CodeLocked (the server runs), CodeConflict (the keyspace has
// other rows), CodeCorrupt (the rows differ), CodeUnavailable.
func CopyMetadata(ctx context.Context, data, url string, log *slog.Logger, say func(migration.Progress)) ([]migration.Count, error) {
	d, to, err := openForCopy(ctx, data, url, log)
	if err != nil {
		return nil, err
	}
	defer d.close()
	defer to.Close()
	dir, moved := d.metadata(), false
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // an earlier call was interrupted after the renaming
		dir, moved = d.movedMetadata(), true
	}
	from, err := pebble.Open(dir, 0, log)
	if err != nil {
		return nil, err
	}
	counts, call, err := copyFrom(ctx, from, to, d, moved, say)
	if err = errors.Join(err, from.Close()); err != nil {
		return nil, err
	}
	if !moved {
		if err := d.rename(d.metadata(), d.movedMetadata()); err != nil {
			return nil, err
		}
	}
	return counts, migration.Finish(ctx, to, call)
}

func copyFrom(ctx context.Context, from *pebble.Store, to migration.Target, d *dataDir, moved bool, say func(migration.Progress)) (counts []migration.Count, call migration.Call, err error) {
	call = migration.Call{Copier: core.NewID(time.Now()), Aside: moved}
	if call.Cluster, err = metadata.ClusterID(ctx, from, d.cluster(), time.Now()); err == nil {
		counts, err = migration.Copy(ctx, from, to, call, say)
	}
	return counts, call, err
}

// UndoCopy lets the embedded metadata count again that CopyMetadata has renamed, unless a server has started on the
// copy. Errors: CodeNotFound, CodeLocked, CodeConflict, CodeUnavailable.
func UndoCopy(ctx context.Context, data, url string, log *slog.Logger) error {
	d, to, err := openForCopy(ctx, data, url, log)
	if err != nil {
		return err
	}
	defer d.close()
	defer to.Close()
	_, err = os.Stat(d.movedMetadata())
	moved := !errors.Is(err, fs.ErrNotExist) // else the copy was not finished, or an earlier call was interrupted
	if err := migration.Undo(ctx, to, d.cluster(), moved); err != nil {
		return err
	}
	if moved {
		if err := d.rename(d.movedMetadata(), d.metadata()); err != nil {
			return err
		}
	}
	return migration.Restored(ctx, to)
}

// openForCopy locks a data directory that has metadata, and connects to Cassandra.
func openForCopy(ctx context.Context, data, url string, log *slog.Logger) (d *dataDir, to *cassandra.Store, err error) {
	if err := cassandra.CheckKeyspace(url); err != nil {
		return nil, nil, err
	}
	cfg, err := cassandra.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	there := &dataDir{path: data}
	_, embedded := os.Stat(there.metadata())
	if _, moved := os.Stat(there.movedMetadata()); embedded != nil && moved != nil {
		return nil, nil, core.Errorf(core.CodeNotFound, "data directory %s has no metadata; name that of the process with the role %s", data, RoleController)
	}
	waits := func(dir, process string) {
		log.Warn("the data directory is in use; waiting for that process to end", "data", dir, "process", process, "at_most", lockWait)
	}
	if d, err = openDataDir(ctx, data, time.Now(), waits); err != nil {
		return nil, nil, err
	}
	cfg.Log = log
	connecting, cancel := context.WithTimeout(ctx, metadataWait)
	defer cancel()
	if to, err = cassandra.Open(connecting, cfg); err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	return d, to, nil
}
