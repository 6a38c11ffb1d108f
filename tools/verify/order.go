package verify

import (
	"cmp"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// Chain is the extents of a CP queue in the order of their places.
type Chain struct {
	Queue   string          `json:"queue"`
	Extents []core.ExtentID `json:"extents"`
}

// place is where a record is in a chain.
type place struct {
	extent int
	seq    core.Seq
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.extent, b.extent), cmp.Compare(a.seq, b.seq))
}

// order checks what a CP queue promises: each publisher's messages appear for the first time in the order they were
// published, and a group with one consumer at a time gets first attempts in the order of the chain, but for what a
// fault held up on its way.
func (c *checker) order(chain Chain) {
	extents := make(map[core.ExtentID]int)
	for i, e := range chain.Extents {
		extents[e] = i
	}
	first := make(map[Key]place)
	newest := make(map[string]handed)
	seen := make(map[string]map[core.Receipt]bool)
	for i := range c.h.Received {
		r := &c.h.Received[i]
		if r.Queue != chain.Queue {
			continue
		}
		at, known := extents[r.Receipt.Extent]
		if !known {
			c.find(Disordered, r.Group, r.Key, "stored as %s, which is not of the queue's chain", r.Receipt)
			continue
		}
		p := place{at, r.Receipt.Seq}
		if old, known := first[r.Key]; !known || comparePlaces(p, old) < 0 {
			first[r.Key] = p
		}
		if seen[r.Group] == nil {
			seen[r.Group] = make(map[core.Receipt]bool)
		}
		again := seen[r.Group][r.Receipt]
		seen[r.Group][r.Receipt] = true
		if again || r.Attempt != 1 || r.Settled == Dead {
			continue
		}
		if last, known := newest[r.Group]; known && comparePlaces(p, last.place) < 0 {
			if !c.crashed(last.at, r.At) {
				c.find(Disordered, r.Group, r.Key, "first delivered as %s at %s, after what was stored behind it", r.Receipt, r.At.Format(time.StampMilli))
			}
			continue
		}
		newest[r.Group] = handed{p, r.At}
	}
	c.publishers(first)
}

type handed struct {
	place
	at time.Time
}

// publishers checks the order of first appearances in the log.
func (c *checker) publishers(first map[Key]place) {
	keys := make([]Key, 0, len(first))
	for k := range first {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Publisher, b.Publisher), cmp.Compare(a.Seq, b.Seq))
	})
	for i := 1; i < len(keys); i++ {
		a, b := keys[i-1], keys[i]
		if a.Publisher == b.Publisher && comparePlaces(first[b], first[a]) < 0 {
			c.find(Disordered, "", b, "appears before %d of the same publisher", a.Seq)
		}
	}
}
