package ring

import (
	"errors"
	"slices"
	"syscall"

	"github.com/columbamq/columba/core"
)

// Read reads bytes of the log into b. CodeNotFound: the segment was freed since.
func (r *Ring) Read(p Place, b []byte) error {
	s := r.pin(p.Serial)
	if s == nil {
		return core.Errorf(core.CodeNotFound, "segment use %d of the log is over", p.Serial)
	}
	defer r.unpin(s)
	return s.readAt(b[:p.Length], int64(p.Offset))
}

func (r *Ring) pin(serial uint64) *segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.mu.used, func(s *segment) bool { return s.serial == serial && !s.freed })
	if i < 0 {
		return nil
	}
	r.mu.used[i].pins++
	return r.mu.used[i]
}

func (r *Ring) unpin(s *segment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.pins--; s.pins == 0 && s.freed {
		r.releaseLocked(s)
	}
}

// Use is one use of a segment.
type Use struct {
	Serial      uint64
	First, Last uint64 // numbers of its groups
	Records     uint64 // number of the last one with records
	Ended       bool   // it takes no more groups
	Size        int64  // bytes of the segment
}

// Uses are in the order of the log.
func (r *Ring) Uses() []Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Use
	for _, s := range r.mu.used {
		if !s.freed {
			all = append(all, Use{s.serial, s.first, s.last, s.records, s.ended, s.size})
		}
	}
	return all
}

// Room is how many bytes the free segments have, and all of them.
func (r *Ring) Room() (free, all int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.mu.free {
		free += s.size
	}
	all = free
	for _, s := range r.mu.used {
		all += s.size
	}
	return free, all
}

// Largest is how many bytes the largest segment has.
func (r *Ring) Largest() (size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Concat(r.mu.free, r.mu.used) {
		size = max(size, s.size)
	}
	return size
}

// Free gives a segment back that has ended, once nobody reads it. Its owner has made sure that a start does not need
// it: Options.After will be its last group, or a later one.
func (r *Ring) Free(serial uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.mu.used {
		if s.serial == serial && !s.freed {
			if s.freed = true; s.pins == 0 {
				r.releaseLocked(s)
			}
			return
		}
	}
}

func (r *Ring) releaseLocked(s *segment) {
	r.mu.used = slices.DeleteFunc(r.mu.used, func(u *segment) bool { return u == s })
	s.serial = 0
	r.mu.free = append(r.mu.free, s)
}

// Marked reports whether a mark is the last group of the log, or the log has none; only the goroutine that writes calls
// it.
func (r *Ring) Marked() bool { return r.last.kind != Records }

// Trim removes free segments of more than so many bytes, but for the largest one of the ring: what was made for one
// large group is of no use once there is one for a larger group.
func (r *Ring) Trim(most int64) error {
	for s := r.spare(most); s != nil; s = r.spare(most) {
		if err := errors.Join(s.file.Close(), r.fs.Remove(s.name)); err != nil {
			return diskError("remove a segment of the log", err)
		}
	}
	return nil
}

// spare takes a segment out of the ring that Trim removes; nil: there is none.
func (r *Ring) spare(most int64) *segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.mu.free {
		for _, other := range slices.Concat(r.mu.used, r.mu.free) {
			if s.size > most && other != s && other.size >= s.size {
				r.mu.free = slices.Delete(r.mu.free, i, i+1)
				return s
			}
		}
	}
	return nil
}

// Release closes all files. Nobody uses the ring any more.
func (r *Ring) Release() error {
	var errs []error
	for _, s := range append(r.mu.used, r.mu.free...) {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

func diskError(what string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return core.Errorf(core.CodeNoSpace, "%s: %w", what, err)
	}
	return core.Errorf(core.CodeUnavailable, "%s: %w", what, err)
}
