package enginefs

import "github.com/cockroachdb/pebble/v2/vfs"

// How far ahead of its end a fresh write-ahead log is zeroed, and up to which size of a write: a large one pays for its
// own blocks.
const (
	zeroAhead  = 64 << 10
	zeroWrites = 16 << 10
)

var zeroes [zeroAhead]byte

// zeroed is a write-ahead log, zeroed ahead of what is written, from its beginning on, by one goroutine. The sync of a
// block that the file has on disk already costs one write; that of a new one, allocated before or not, also costs a
// commit of the file system's journal. Pebble gets there by using its logs again, but only once some are full, and not
// across a restart. To a reader the zeroes are what the rest of a log used again is: its end.
type zeroed struct {
	vfs.File
	end  int64 // of what was written
	upTo int64 // it is zeroed
}

// Write implements vfs.File.
func (f *zeroed) Write(b []byte) (int, error) {
	if end := f.end + int64(len(b)); end > f.upTo && len(b) <= zeroWrites {
		// Where it fails the write itself is about to tell, or nothing is amiss.
		if _, err := f.File.WriteAt(zeroes[:], end); err == nil {
			f.upTo = end + zeroAhead
		}
	}
	n, err := f.File.Write(b)
	f.end += int64(n)
	return n, err
}
