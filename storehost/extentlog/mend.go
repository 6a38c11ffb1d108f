package extentlog

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/bitflip"
)

// mendMost is how large a table may be of which a start corrects all blocks, if it has nothing but records. A read
// finds damage to others, and quarantines an extent.
const mendMost = 4 << 20

// checkManifest corrects flipped bits in the list of the tables. Pebble takes damage to it for its end, and removes the
// tables that the rest of it names.
func (e *Engine) checkManifest(home string) error {
	format, err := atomicfs.ReadMarker(e.files, home, "format-version")
	if err != nil {
		return openError(e.dir, err)
	}
	if version, err := strconv.ParseUint(format, 10, 64); err == nil && version > uint64(pebble.FormatNewest) {
		return newerFormat(e.dir, "format "+format+" of the database") // nothing of it may be changed
	}
	manifest, err := atomicfs.ReadMarker(e.files, home, "manifest")
	if err != nil {
		return openError(e.dir, err)
	}
	if manifest == "" {
		return damagedDatabase(e.dir, pebble.ErrDBDoesNotExist)
	}
	name := e.fs.PathJoin(home, manifest)
	b, err := e.readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return damagedDatabase(e.dir, err)
	case err != nil:
		return openError(e.dir, err)
	}
	fixes, verdict := bitflip.Records(b)
	if verdict == bitflip.Damaged || len(b) == 0 || e.keepDamage && len(fixes) > 0 {
		return damagedDatabase(e.dir, core.Errorf(core.CodeCorrupt, "%s, which lists the tables, cannot be read", manifest))
	}
	return e.fix(name, fixes)
}

// forgetOptions removes the file of options that the database wrote when it was opened last. It has no checksum, and
// the options are always the same.
func forgetOptions(files vfs.FS, home string) error {
	names, err := files.List(home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "OPTIONS-") {
			if err := files.Remove(files.PathJoin(home, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// mend corrects flipped bits in tables.
func (e *Engine) mend(error) error {
	home := e.fs.PathJoin(e.dir, databaseDir)
	tables, err := e.tablesIn(home)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.size > mendMost && e.hasOnlyRecords(t) {
			continue
		}
		b, err := e.readFile(t.name)
		if err != nil {
			return openError(e.dir, err)
		}
		fixes, _ := bitflip.Table(b, e.readerOptions())
		if err := e.fix(t.name, fixes); err != nil {
			return err
		}
	}
	return nil
}

// hasOnlyRecords reports whether a table has no rows.
func (e *Engine) hasOnlyRecords(t tableFile) bool {
	r, err := openTable(e.files, t.name, e.readerOptions())
	if err != nil {
		return false
	}
	defer r.Close()
	all, err := ends(r)
	return err == nil && all.from != nil && all.from[0] == all.to[0] && (all.from[0] == prefixBatch || all.from[0] == prefixDue)
}

// fix writes bytes that were corrected. A crash between two of them leaves a file that is better than before.
func (e *Engine) fix(name string, fixes []bitflip.Fix) error {
	if len(fixes) == 0 {
		return nil
	}
	f, err := e.files.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return openError(e.dir, err)
	}
	for _, x := range fixes {
		if err == nil {
			_, err = f.WriteAt([]byte{x.Byte}, x.Offset)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return openError(e.dir, err)
	}
	e.log.Error("flipped bits of the database are corrected; check the disk and the memory of this machine", "file", name, "bits", len(fixes))
	return nil
}
