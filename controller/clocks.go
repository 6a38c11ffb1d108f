package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/membership/clocks"
)

// skewed holds the last verdict on each host's clock. Safe for concurrent use.
type skewed struct {
	mu struct {
		sync.Mutex
		verdicts map[core.HostID]skew.Verdict // replaced, never changed
	}
}

// wrong reports whether the clock of a host is known to be wrong. Such a host gets no new work in which times matter.
func (s *skewed) wrong(id core.HostID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.verdicts[id].State == skew.Wrong
}

func (s *skewed) replace(now map[core.HostID]skew.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.verdicts = now
}

// watchClocks compares the clocks of all hosts until ctx ends. It alone changes the verdicts.
func (h *Host) watchClocks(ctx context.Context) {
	reader := clocks.New(h.deps.Peers.Dial, h.deps.now)
	defer reader.Close()
	var verdicts map[core.HostID]skew.Verdict
	reader.Watch(ctx, h.deps.Members, func(readings map[core.HostID]skew.Reading, silent int) {
		verdicts = h.judgeClocks(readings, silent, verdicts)
	})
}

// judgeClocks publishes the verdicts on all clocks and answers them. A member that did not say its time keeps the
// verdict of before. When a clock turned out to be wrong, or is right again, shares get their owners anew, and the
// controller seals the open timer extents on stores whose clocks are wrong.
func (h *Host) judgeClocks(readings map[core.HostID]skew.Reading, silent int, before map[core.HostID]skew.Verdict) map[core.HostID]skew.Verdict {
	now := skew.Judge(readings, silent, before)
	for _, m := range h.deps.Members.Hosts("") {
		if v, known := before[m.ID]; known {
			if _, said := now[m.ID]; !said {
				now[m.ID] = v
			}
		}
	}
	h.skewed.replace(now)
	for id := range before {
		if _, member := now[id]; !member {
			h.metrics.skew.DeleteLabelValues(string(id))
		}
	}
	moved := false
	for id, v := range now {
		h.metrics.skew.WithLabelValues(string(id)).Set(v.Off.Seconds())
		if was := before[id].State; was != v.State {
			moved = moved || was == skew.Wrong || v.State == skew.Wrong
			h.logClock(id, v)
		}
	}
	if moved {
		h.sealOnWrongClocks()
		h.pokeMoved()
	}
	return now
}

// sealOnWrongClocks has the open timer extents sealed that have a replica on a store whose clock is wrong.
func (h *Host) sealOnWrongClocks() {
	for e := range h.extents.Open(func(x *catalog.Extent) bool {
		return x.Kind == core.KindTimer && slices.ContainsFunc(x.Replicas, h.skewed.wrong)
	}) {
		h.sealSoon(e.Extent, "a clock is wrong")
	}
}

func (h *Host) logClock(id core.HostID, v skew.Verdict) {
	off := v.Off.Round(time.Second)
	switch v.State {
	case skew.Wrong:
		h.log.Error("the clock of a host is wrong: messages that are delayed by it come early or late, so a store gets no new extents, an output host no groups, and an input host goes by the clocks of the others; set its clock, and look after its time service", "host", id, "ahead", off)
	case skew.Doubtful:
		h.log.Warn("the clock of a host differs from the others': messages that are delayed by it come early or late; look after its time service", "host", id, "ahead", off)
	default:
		h.log.Info("the clock of a host is right again", "host", id, "ahead", off)
	}
}
