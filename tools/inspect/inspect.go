// Package inspect owns the offline inspection of one store's directory: the records of an extent, and whether it is
// whole.
package inspect

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// readBytes is how much of an extent is read at once.
const readBytes = 4 << 20

// Store is a store's directory, opened while no server has it. Not safe for concurrent use.
type Store struct{ log extentlog.Log }

// Open opens a server's data directory, or the store directory inside it. It takes the directory's lock: CodeLocked
// while a server runs on it, CodeNotFound when there is no store, CodeCorrupt when its database is damaged: only a
// server makes a new one.
func Open(dir string) (*Store, error) {
	for _, store := range []string{filepath.Join(dir, "store"), dir} {
		if _, err := os.Stat(filepath.Join(store, "log")); err == nil {
			log, err := extentlog.Open(store, extentlog.Options{Log: slog.New(slog.DiscardHandler), KeepDamage: true})
			if err != nil {
				return nil, named(dir, err)
			}
			return &Store{log: log}, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, core.Errorf(core.CodeReadOnly, "store %s cannot be opened: %w", store, err)
		}
	}
	return nil, core.Errorf(core.CodeNotFound, "%s holds no store; name the data directory of a stopped server", dir)
}

// named is err; of a directory that is in use it names the process, which its server has written into the file of its
// own lock.
func named(dir string, err error) error {
	if core.CodeOf(err) != core.CodeLocked {
		return err
	}
	f, ferr := os.Open(filepath.Join(dir, "lock"))
	if ferr != nil {
		return err
	}
	defer f.Close()
	owner, _ := io.ReadAll(io.LimitReader(f, 20)) // for the text only
	if pid, perr := strconv.Atoi(strings.TrimSpace(string(owner))); perr == nil {
		return core.Errorf(core.CodeLocked, "data directory %s is in use by process %d; stop that server, or name the directory of a stopped one", dir, pid)
	}
	return err
}

// Close gives the directory's lock back.
func (s *Store) Close() error { return s.log.Close() }

// Extents are the states of all extents, in order of id.
func (s *Store) Extents() ([]extentlog.State, error) {
	var out []extentlog.State
	err := s.log.List(func(st extentlog.State) bool {
		out = append(out, st)
		return true
	})
	return out, err
}

// Record is one stored message. Its slices are valid until the visit ends.
type Record struct {
	Seq      core.Seq
	Enqueued int64 // unix µs, of its batch
	wire.Record
}

// Report is what an extent's bytes turned out to be.
type Report struct {
	State    extentlog.State
	Batches  int
	Records  int
	Verified core.Seq // every record up to here is whole and in order
	Damage   error    // what stands after it; nil when the whole extent is good
}

// Extent reads a whole extent and verifies headers, checksums and order. visit, if not nil, gets each record until it
// returns an error, which ends the reading and is returned. CodeNotFound when the store does not know the extent.
func (s *Store) Extent(id core.ExtentID, visit func(Record) error) (Report, error) {
	st, err := s.log.State(id)
	if err != nil {
		return Report{}, err
	}
	r := Report{State: st}
	for batch, err := range s.batches(st) {
		if err != nil {
			r.Damage = err
			return r, nil
		}
		if err := each(batch, visit); err != nil {
			return r, err
		}
		r.add(batch)
	}
	return r, nil
}

func (r *Report) add(b wire.Batch) {
	r.Batches++
	r.Records += int(b.Count)
	r.Verified = b.Last()
}

// batches are those of an extent, each verified; the first damage ends them. A batch is valid until the next one.
func (s *Store) batches(st extentlog.State) iter.Seq2[wire.Batch, error] {
	return func(yield func(wire.Batch, error) bool) {
		var sum uint32
		for verified := core.Seq(0); verified < st.Last; {
			run, err := s.log.Read(st.Extent.ID, verified+1, st.Last, readBytes)
			if err == nil && len(run) == 0 {
				err = core.Errorf(core.CodeCorrupt, "nothing is stored at seq %d", verified+1)
			}
			for err == nil && len(run) > 0 {
				var batch wire.Batch
				if batch, run, err = wire.NextBatch(run); err != nil {
					break
				}
				if err = check(batch, verified+1, &sum); err == nil && !yield(batch, nil) {
					return
				}
				verified = batch.Last()
			}
			if err != nil {
				yield(wire.Batch{}, err)
				return
			}
		}
		if sum != st.Checksum {
			yield(wire.Batch{}, core.Errorf(core.CodeCorrupt, "the extent's checksum is %08x, its records give %08x", st.Checksum, sum))
		}
	}
}

// check verifies a batch that has to begin at base, and rolls the extent's checksum on.
func check(b wire.Batch, base core.Seq, sum *uint32) error {
	if b.Base != base {
		return core.Errorf(core.CodeCorrupt, "a batch begins at seq %d, not %d", b.Base, base)
	}
	count, err := wire.CheckRecords(b.Records, wire.MaxPayload+wire.InternalHeadroom)
	if err != nil {
		return core.Errorf(core.CodeCorrupt, "records from seq %d: %w", b.Base, err)
	}
	if count != int(b.Count) {
		return core.Errorf(core.CodeCorrupt, "the batch at seq %d holds %d records, its header says %d", b.Base, count, b.Count)
	}
	if *sum = wire.ExtendChecksum(*sum, b.Records); *sum != b.Checksum {
		return core.Errorf(core.CodeCorrupt, "the checksum after the batch at seq %d is %08x, its records give %08x", b.Base, b.Checksum, *sum)
	}
	return nil
}

func each(b wire.Batch, visit func(Record) error) error {
	if visit == nil {
		return nil
	}
	rest, seq := b.Records, b.Base
	for len(rest) > 0 {
		rec := Record{Seq: seq, Enqueued: b.AppendTime}
		n, err := wire.DecodeRecord(rest, &rec.Record)
		if err != nil {
			return err // check has seen these bytes
		}
		if err := visit(rec); err != nil {
			return err
		}
		rest, seq = rest[n:], seq+1
	}
	return nil
}
