package verify

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// chained is a good history of a CP queue: two extents with three messages each, the fourth stored twice.
func chained() *History {
	second := core.ExtentID{ID: core.NewID(began)}
	h := &History{
		Groups: []Left{{Queue: queue, Group: "g"}}, Chains: []Chain{{Queue: queue, Extents: []core.ExtentID{extent, second}}},
		Crashes: []Crash{{What: "server", From: at(100), To: at(101)}},
	}
	for i := range uint64(6) {
		h.Published = append(h.Published, Published{Key: key(i + 1), CRC: uint32(i+1) * 7, Outcome: Acked, At: at(99)})
		h.Received = append(h.Received, delivery("g", i+1, 110+float64(i)).change(func(r *Received) {
			r.Receipt.Seq = core.Seq(i%3 + 1)
			if i >= 3 {
				r.Receipt.Extent = second
			}
		}))
	}
	h.Received = append(h.Received, delivery("g", 4, 116).change(func(r *Received) { r.Receipt = core.Receipt{Extent: second, Seq: 4} }))
	return h
}

func TestCheck_Order(t *testing.T) {
	for name, c := range map[string]struct {
		seq      uint64 // of the finding; 0: there is none
		sabotage func(h *History)
	}{
		"good":            {0, func(*History) {}},
		"delivered again": {0, func(h *History) { h.Received = append(h.Received, h.Received[1]); h.last().At = at(117) }},
		"a retry is later": {0, func(h *History) {
			h.Received[1], h.Received[2] = h.Received[2], h.Received[1]
			h.Received[2].Attempt, h.Received[2].At = 2, h.Received[1].At
		}},
		"swapped in an extent": {3, func(h *History) {
			h.Received[1].Key, h.Received[2].Key = h.Received[2].Key, h.Received[1].Key
			h.Received[1].CRC, h.Received[2].CRC = h.Received[2].CRC, h.Received[1].CRC
		}},
		"extents in another order": {4, func(h *History) {
			x := h.Chains[0].Extents
			x[0], x[1] = x[1], x[0]
			for i := range h.Received { // as the group got it
				h.Received[i].Attempt = 2
			}
		}},
		"handed out too early": {2, func(h *History) { h.Received[1], h.Received[2] = h.Received[2], h.Received[1] }},
		"of no chain":          {6, func(h *History) { h.Received[5].Receipt.Extent = core.ExtentID{ID: core.NewID(began)} }},
	} {
		h := chained()
		c.sabotage(h)
		got := Check(h, time.Second).Of(Disordered)
		if c.seq == 0 && len(got) > 0 || c.seq > 0 && (len(got) != 1 || got[0].Key.Seq != c.seq) {
			t.Errorf("%s: got %v, want one about %d (0: none)", name, got, c.seq)
		}
	}
}

func (h *History) last() *Received { return &h.Received[len(h.Received)-1] }
