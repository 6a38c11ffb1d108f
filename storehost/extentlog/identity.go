package extentlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// identityFile has the rows of the database without which a store does not start, once more: they are written once, and
// the damage of one block would cost the store. It holds two copies, each with a checksum.
const (
	identityFile   = "IDENTITY"
	identityMagic  = "CID1"
	identityCopy   = 4 << 10 // bytes of each copy, zeros included
	identityHeader = len(identityMagic) + 4 + 2
	identityFixed  = identityHeader + 1 + idLen + secretLen
	mostStoreID    = identityCopy - identityFixed
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// essentials are the rows that a store cannot be without.
type essentials struct {
	format byte
	owner  []byte // disk id ‖ store id
	secret []byte
}

// put writes two copies of: magic | checksum u32 of the rest | length of the store id u16 | format u8 | disk id 16 |
// secret 32 | store id; little endian.
func (s essentials) put() []byte {
	b := make([]byte, identityCopy)
	copy(b, identityMagic)
	store := s.owner[idLen:]
	binary.LittleEndian.PutUint16(b[identityHeader-2:], uint16(len(store)))
	rest := append(append(append([]byte{s.format}, s.owner[:idLen]...), s.secret...), store...)
	copy(b[identityHeader:], rest)
	sum := crc32.Checksum(b[identityHeader-2:identityHeader+len(rest)], castagnoli)
	binary.LittleEndian.PutUint32(b[len(identityMagic):], sum)
	return append(b, b...)
}

// decodeEssentials reads the first copy that is sound.
func decodeEssentials(b []byte) (s essentials, ok bool) {
	for ; len(b) >= identityFixed; b = b[min(identityCopy, len(b)):] {
		store := int(binary.LittleEndian.Uint16(b[identityHeader-2:]))
		end := identityFixed + store
		if string(b[:len(identityMagic)]) != identityMagic || store == 0 || end > min(identityCopy, len(b)) ||
			crc32.Checksum(b[identityHeader-2:end], castagnoli) != binary.LittleEndian.Uint32(b[len(identityMagic):]) {
			continue
		}
		rest := b[identityHeader:end]
		s.format, rest = rest[0], rest[1:]
		s.owner = append(append(s.owner, rest[:idLen]...), rest[idLen+secretLen:]...)
		s.secret = append(s.secret, rest[idLen:idLen+secretLen]...)
		return s, true
	}
	return s, false
}

// complete reports whether nothing is missing.
func (s essentials) complete() bool {
	return s.format > 0 && len(s.owner) > idLen && len(s.owner)-idLen <= mostStoreID && len(s.secret) == secretLen
}

// essentialsIn reads them from the database.
func (e *Engine) essentialsIn(db *pebble.DB) (s essentials, err error) {
	format, err := e.metaOf(db, keyFormat)
	if err == nil && len(format) == 1 {
		s.format = format[0]
	}
	if err == nil {
		s.owner, err = e.metaOf(db, keyIdentity)
	}
	if err == nil {
		s.secret, err = e.metaOf(db, keySecret)
	}
	return s, err
}

// keepIdentity writes the file of a database, unless it is there and whole.
func (e *Engine) keepIdentity(db *pebble.DB) error {
	s, err := e.essentialsIn(db)
	if err != nil || !s.complete() {
		return err
	}
	want := s.put()
	is, err := e.readFile(e.fs.PathJoin(e.dir, identityFile))
	if err == nil && bytes.Equal(is, want) {
		return nil
	}
	return e.replaceFile(identityFile, want)
}

// keptIdentity reads the file; ok is false when it is not there, or damaged.
func (e *Engine) keptIdentity() (s essentials, ok bool, err error) {
	b, err := e.readFile(e.fs.PathJoin(e.dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, openError(e.dir, err)
	}
	s, ok = decodeEssentials(b)
	return s, ok, nil
}

func (e *Engine) readFile(name string) ([]byte, error) {
	f, err := e.files.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// replaceFile writes a file of the directory, whole or not at all.
func (e *Engine) replaceFile(name string, b []byte) error {
	name = e.fs.PathJoin(e.dir, name)
	f, err := e.files.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return openError(e.dir, err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = errors.Join(e.files.Rename(name+".new", name), e.syncDir(e.dir))
	}
	if err != nil {
		return openError(e.dir, err)
	}
	return nil
}

// identify checks the format and the owner of the directory.
func (e *Engine) identify() error {
	is, err := e.essentialsIn(e.db)
	if err == nil {
		err = e.checkIdentity(is)
	}
	if err != nil {
		return err
	}
	e.identity.Disk = core.DiskID{ID: core.ID(is.owner[:idLen])}
	e.identity.Store = core.HostID(is.owner[idLen:])
	if e.readOnly.Load() != nil || !is.complete() {
		return nil
	}
	if err := e.keepIdentity(e.db); err != nil {
		e.log.Warn("the identity of the store is not written down a second time", "dir", e.dir, "err", err)
	}
	return nil
}

func (e *Engine) meta(key []byte) ([]byte, error) { return e.metaOf(e.db, key) }

func (e *Engine) metaOf(db *pebble.DB, key []byte) ([]byte, error) {
	value, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, openError(e.dir, err)
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// checkIdentity checks that a directory is one that this build reads, and that it belongs to this store.
func (e *Engine) checkIdentity(s essentials) error {
	switch {
	case s.format == 0:
		return damagedDatabase(e.dir, core.Errorf(core.CodeCorrupt, "the format version is missing"))
	case s.format > FormatVersion:
		return newerVersion(e.dir, s.format)
	case len(s.owner) <= idLen:
		return damagedDatabase(e.dir, core.Errorf(core.CodeCorrupt, "the identity of the store is missing"))
	}
	store := core.HostID(s.owner[idLen:])
	if e.identity.Store != "" && store != e.identity.Store {
		return core.Errorf(core.CodeConflict, "%s belongs to store %q, not %q; start with that id or in another directory", e.dir, store, e.identity.Store)
	}
	return nil
}
