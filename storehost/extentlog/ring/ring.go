package ring

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// serialGap is how many serials a start leaves out: a segment that it cannot read may have one of them.
const serialGap = 1 << 16

// Options of a Ring.
type Options struct {
	FS   vfs.FS
	Disk core.DiskID // that the log is on; a segment of another one is refused
	Run  core.RunID  // of this process
	// Key is a secret of the directory, the same at each start: by it a start knows its own groups.
	Key []byte
	// After is the number of a group: it and those before it are not wanted any more.
	After uint64
	// Last is at least After: what the owner knows of elsewhere. The next group has a higher number.
	Last uint64
	// Serial is at least the highest serial that the owner of the log knows.
	Serial uint64
	// Brief is the number of a group: of segments whose records are up to there, the summary is replayed instead of them.
	Brief uint64
}

// Ring is the log. One goroutine writes: it alone calls Begun, Begin, Fits, Next, Write, Summarize and End. The other
// methods are safe for concurrent use.
//
//	         Make        Begin           End             Free, and no reader
//	nothing ─────▶ free ───────▶ at hand ─────▶ ended ─────────────────────▶ free
type Ring struct {
	fs     vfs.FS
	dir    string
	o      Options
	head   *segment // nil: the next group begins a segment
	last   header   // of the log
	serial uint64   // of the use that began last

	durable atomic.Uint64 // number

	mu struct {
		sync.Mutex
		used    []*segment // in the order of the log
		free    []*segment
		ordinal uint64 // of the next file
	}
}

// Open reads the log in dir, and calls replay for each group behind Options.After, in order, or for the summary of its
// segment: see Options.Brief. Those groups are durable. damage is what was durable once and cannot be read, none of
// which is replayed, but for a group that is sound and not the one that the next one follows. Of a segment whose
// summary is replayed, nobody looks for damage. CodeNewerFormat, CodeConflict (a segment of another store),
// CodeUnavailable.
func Open(dir string, o Options, replay func(Group) error) (r *Ring, damage []Damage, err error) {
	r = &Ring{fs: o.FS, dir: dir, o: o}
	names, err := o.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is none yet, of a store that may not make it
		return nil, nil, core.Errorf(core.CodeUnavailable, "list the segments in %s: %w", dir, err)
	}
	var all []*segment
	defer func() {
		if err != nil {
			for _, s := range all {
				_ = s.file.Close() // the first error says more
			}
		}
	}()
	for _, name := range names {
		ordinal, ok := ordinalOf(name)
		if !ok {
			continue
		}
		r.mu.ordinal = max(r.mu.ordinal, ordinal+1)
		s, err := open(o.FS, dir, ordinal)
		if err != nil {
			return nil, nil, core.Errorf(core.CodeUnavailable, "open segment %s: %w", name, err)
		}
		all = append(all, s)
	}
	for _, s := range all { // of a process that was killed, groups may be written and not synced
		if err := s.file.SyncData(); err != nil {
			return nil, nil, core.Errorf(core.CodeUnavailable, "sync segment %s: %w", s.name, err)
		}
	}
	slices.SortFunc(all, func(a, b *segment) int { return cmp.Compare(a.ordinal, b.ordinal) })
	found := recovery{disk: o.Disk, key: o.Key, after: o.After, brief: o.Brief, replay: replay, serial: o.Serial}
	if r.mu.used, r.mu.free, err = found.run(all); err != nil {
		return nil, nil, err
	}
	r.last = found.last
	r.last.number = max(r.last.number, o.After, o.Last)
	for _, d := range found.damage {
		r.last.number = max(r.last.number, d.To) // the owner may note that it knows of them
	}
	r.serial = found.serial + serialGap
	r.durable.Store(r.last.number)
	return r, found.damage, nil
}

// Make adds a free segment of so many bytes, a multiple of 4 KiB, at least 16 KiB. It writes all of it, and calls pause
// after every 64 KiB. CodeNoSpace and CodeUnavailable.
func (r *Ring) Make(size int64, pause func()) error {
	r.mu.Lock()
	ordinal := r.mu.ordinal
	r.mu.ordinal++
	r.mu.Unlock()
	s, err := create(r.fs, r.dir, ordinal, size, pause)
	if err != nil {
		return diskError("make a segment of the log", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.free = append(r.mu.free, s)
	return nil
}

// Begun reports whether a segment is at hand.
func (r *Ring) Begun() bool { return r.head != nil }

// Fits reports whether so many bytes have room in the segment at hand: SizeFor a group, and SizeForSummary what is to
// come behind it. When not, the owner ends the segment, if one is at hand, and begins another one.
func (r *Ring) Fits(bytes int64) bool { return r.head != nil && r.head.end+bytes <= r.head.size }

// SizeFor is how many bytes of a segment a group with a body of n bytes takes.
func SizeFor(n int) int64 { return span(n) }

// SizeForSummary is how many bytes of a segment its summary of n bytes takes.
func SizeForSummary(n int) int64 { return span(n + trailerLen) }

// Next is the number that the next group gets.
func (r *Ring) Next() uint64 { return r.last.number + 1 }

// Summarize writes the last group of the segment at hand, for which the owner has left room. End has to follow. An
// error is as one of Write.
func (r *Ring) Summarize(b *Buffer) error {
	s := r.head
	group, at := b.summary(s.size)
	_, err := r.put(Summary, group, at, len(group)-headerLen)
	return err
}

// End takes no more groups into the segment at hand, and syncs it: what a later segment holds proves that all of this
// one was durable. An error is as one of Write.
func (r *Ring) End() error {
	s := r.head
	if err := s.file.SyncData(); err != nil {
		return diskError("sync a segment of the log", err)
	}
	r.head = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	s.ended = true
	return nil
}

// Sync makes a group durable, and those before it. One goroutine calls it, which may be another one than that which
// writes. An error is as one of Write.
func (r *Ring) Sync(g Group) error {
	s := r.pin(g.Serial)
	if s == nil {
		return nil // it was settled meanwhile, and so is durable elsewhere
	}
	defer r.unpin(s)
	if err := s.file.SyncData(); err != nil {
		return diskError("sync a group of the log", err)
	}
	r.durable.Store(g.Number)
	return nil
}

// HasFree reports whether so many bytes fit into a free segment.
func (r *Ring) HasFree(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freeLocked(bytes) >= 0
}

func (r *Ring) freeLocked(bytes int64) int {
	return slices.IndexFunc(r.mu.free, func(s *segment) bool { return bytes <= s.size })
}

// Begin takes a free segment into which so many bytes fit: of those, the one that has been free for longest. False when
// there is none.
func (r *Ring) Begin(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.freeLocked(bytes)
	if i < 0 {
		return false
	}
	s := r.mu.free[i]
	r.mu.free = slices.Delete(r.mu.free, i, i+1)
	r.serial++
	s.serial, s.secret, s.end, s.ended, s.freed = r.serial, secretOf(r.o.Key, r.serial), 0, false, false
	s.first, s.last, s.records = r.last.number+1, r.last.number, r.last.number
	r.mu.used = append(r.mu.used, s)
	r.head = s
	return true
}

// Write appends a group to the segment at hand. It is durable when Sync has returned for it, or for a later one. After
// an error nobody can say what is on the disk, and the ring is to be opened anew.
func (r *Ring) Write(kind Kind, b *Buffer) (Group, error) {
	s := r.head
	group := b.whole()
	g, err := r.put(kind, group, s.end, b.Len())
	if err == nil {
		s.end += int64(len(group))
	}
	return g, err
}

// put writes a group to a place of the segment at hand.
func (r *Ring) put(kind Kind, group []byte, at int64, n int) (Group, error) {
	s := r.head
	h := header{
		kind: kind, length: uint32(n), serial: s.serial, secret: s.secret, number: r.Next(),
		durable: r.durable.Load(), before: r.last.sum, run: r.o.Run, disk: r.o.Disk, blocks: uint16(min(s.size/blockSize, math.MaxUint16)),
	}
	h.put(group)
	if _, err := s.file.WriteAt(group, at); err != nil {
		return Group{}, diskError("write a group of the log", err)
	}
	r.last = h
	r.mu.Lock()
	defer r.mu.Unlock()
	s.note(&h)
	return Group{Kind: kind, Number: h.number, Place: Place{s.serial, uint32(at + headerLen), h.length}}, nil
}
