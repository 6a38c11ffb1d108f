package extentlog

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

func lockError(dir string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return openError(dir, err)
	}
	return core.Errorf(core.CodeLocked, "%s is in use by another process (%w); stop it or choose another directory", dir, err)
}

func openError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return core.Errorf(core.CodeNoSpace, "the disk of %s is full, or the quota is exceeded; free some space on it: %w", dir, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return core.Errorf(core.CodeReadOnly, "%s cannot be written; give this user write access, or mount it writable: %w", dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return core.Errorf(core.CodeNotFound, "%s is missing; make it, or mount the disk that holds the store: %w", dir, err)
	case strings.Contains(err.Error(), "unknown format major version"):
		return newerFormat(dir, err.Error())
	case pebble.IsCorruptionError(err), strings.Contains(err.Error(), "object size mismatch"): // a table was cut off
		return damagedDatabase(dir, err)
	case errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, pebble.ErrDBNotPristine): // a marker is missing
		return damagedDatabase(dir, err)
	}
	return core.Errorf(core.CodeUnavailable, "open the store in %s: %w", dir, err)
}

func damagedStore(dir string, err error) error {
	return core.Errorf(core.CodeCorrupt, "%s is damaged; move it away and keep it for inspection. In a cluster start this store without it: the extents are copied from other stores. A single server needs its last backup: %w", dir, err)
}

// databaseDamage is damage that a remedy may help against.
type databaseDamage struct{ error }

func (d databaseDamage) Unwrap() error { return d.error }

func damagedDatabase(dir string, err error) error { return damagedStore(dir, databaseDamage{err}) }

func isDatabaseDamage(err error) bool {
	var damage databaseDamage
	return errors.As(err, &damage)
}

func newerVersion(dir string, version byte) error {
	return newerFormat(dir, fmt.Sprintf("version %d, this build knows %d", version, FormatVersion))
}

func newerFormat(dir, why string) error {
	return core.Errorf(core.CodeNewerFormat, "%s was written by a newer version of columba; run that version, or upgrade this one (%s)", dir, why)
}
