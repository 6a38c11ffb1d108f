package ring

import "github.com/cockroachdb/pebble/v2/vfs"

// readBytes counts the bytes that are read.
type readBytes struct {
	vfs.FS
	bytes int64
}

func (f *readBytes) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	return countedFile{file, f}, err
}

type countedFile struct {
	vfs.File
	fs *readBytes
}

func (f countedFile) ReadAt(b []byte, at int64) (int, error) {
	f.fs.bytes += int64(len(b))
	return f.File.ReadAt(b, at)
}
