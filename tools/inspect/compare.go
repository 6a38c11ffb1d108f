package inspect

import (
	"bytes"
	"errors"
	"iter"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Comparison is what the replicas of one extent turned out to be, beside each other.
type Comparison struct {
	Extent core.ExtentID
	Sealed bool     // one of the replicas was told the end
	UpTo   core.Seq // how far they are compared: the end; of an extent without one, what all hold that hold anything
	// Replicas are in the order of the directories.
	Replicas []Replica
}

// Replica is one directory's part of a comparison.
type Replica struct {
	Dir    string
	Absent bool // the store does not know the extent: no difference
	// Report is of the batches compared, up to the first difference.
	Report
	Differs error // from the others; nil when every byte up to UpTo is there and the same
}

// Err is nil when all replicas are byte-identical up to UpTo, else CodeCorrupt with the first that is not.
func (c Comparison) Err() error {
	for _, r := range c.Replicas {
		if r.Differs != nil {
			return core.Errorf(core.CodeCorrupt, "the replicas of extent %s are not identical up to seq %d: %s: %w", c.Extent, c.UpTo, r.Dir, r.Differs)
		}
	}
	return nil
}

// Compare reads the same extent in several stores' directories and compares every byte up to its end. Takes all
// directories' locks. CodeNotFound when none knows the extent.
func Compare(dirs []string, id core.ExtentID) (c Comparison, err error) {
	c = Comparison{Extent: id, Replicas: make([]Replica, len(dirs))}
	var present []*reader
	for i, dir := range dirs {
		c.Replicas[i] = Replica{Dir: dir, Absent: true}
		store, err := Open(dir)
		if err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		st, err := store.log.State(id)
		if errors.Is(err, core.ErrNotFound) {
			continue
		}
		if err != nil {
			return c, err
		}
		c.Replicas[i].Absent, c.Replicas[i].State = false, st
		present = append(present, &reader{Replica: &c.Replicas[i], store: store})
	}
	if len(present) == 0 {
		return c, core.Errorf(core.CodeNotFound, "none of the %d directories holds extent %s", len(dirs), id)
	}
	c.decideEnd(present)
	c.run(present)
	return c, nil
}

// decideEnd finds how far to compare, and the replicas that do not reach there or say something else.
func (c *Comparison) decideEnd(present []*reader) {
	least := present[0].State.Last
	for _, r := range present {
		least = min(least, r.State.Last)
		if r.State.Sealed && !c.Sealed {
			c.Sealed, c.UpTo = true, r.State.L
		}
	}
	if !c.Sealed {
		c.UpTo = least
		return
	}
	for _, r := range present {
		switch st := r.State; {
		case st.Sealed && st.L != c.UpTo:
			r.differ("its end is %d, that of another one %d", st.L, c.UpTo)
		case st.Last < c.UpTo:
			r.differ("ends at seq %d, before the extent's end at %d", st.Last, c.UpTo)
		}
	}
}

// reader walks through one replica.
type reader struct {
	*Replica
	store *Store
	next  func() (wire.Batch, error, bool)
}

func (r *reader) differ(format string, args ...any) {
	if r.Differs == nil {
		r.Differs = core.Errorf(core.CodeCorrupt, format, args...)
	}
}

// run goes through the replicas batch by batch; the first one that is sound there is what the others are compared with.
func (c *Comparison) run(present []*reader) {
	for _, r := range present {
		next, stop := iter.Pull2(r.store.batches(r.State))
		defer stop()
		r.next = next
	}
	for at := core.Seq(1); at <= c.UpTo && len(present) > 0; {
		var model wire.Batch
		left := present[:0]
		for _, r := range present {
			b, err, ok := r.next()
			switch {
			case err != nil:
				r.Damage = err
				r.differ("damaged after seq %d: %w", r.Verified, err)
				continue
			case !ok:
				r.differ("ends at seq %d", r.Verified)
				continue
			case model.Bytes == nil:
				model = b
			case !bytes.Equal(b.Bytes, model.Bytes):
				r.differ("the batch at seq %d is another one", at)
				continue
			}
			if b.Last() > c.UpTo {
				r.differ("seq %d, where the comparison ends, is inside the batch %d to %d", c.UpTo, b.Base, b.Last())
			}
			r.add(b)
			left = append(left, r)
		}
		at, present = model.Last()+1, left
	}
	for _, r := range present {
		if r.State.Last != c.UpTo {
			continue
		}
		if _, err, _ := r.next(); err != nil {
			r.Damage = err
			r.differ("damaged after seq %d: %w", r.Verified, err)
		}
	}
}
