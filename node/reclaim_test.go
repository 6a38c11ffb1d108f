package node

import (
	"context"
	"log/slog"
	"testing"
)

// TestReclaimAfterAPeak: memory of a peak is given back once the process is idle, once, and not while it works. Memory
// that was live then is looked at again, less and less often, for it may be garbage by now.
func TestReclaimAfterAPeak(t *testing.T) {
	const mib = 1 << 20
	r := &reclaimer{}
	for _, step := range []struct {
		what                string
		allocated, resident uint64
		after               uint64 // resident after memory was given back; 0: it is not
	}{
		{"a small server", 10 * mib, 60 * mib, 0},
		{"a peak", 1010 * mib, 900 * mib, 0},
		{"after the peak, with little work", 1030 * mib, 900 * mib, 40 * mib},
		{"idle and small", 1031 * mib, 41 * mib, 0},
		{"a steady load that the collector looks after", 1231 * mib, 300 * mib, 0},
		{"the same", 1431 * mib, 300 * mib, 0},
		{"a peak of live memory", 2431 * mib, 1000 * mib, 0},
		{"idle, nothing of it is garbage", 2432 * mib, 1000 * mib, 900 * mib},
		{"the same, which is known", 2433 * mib, 1000 * mib, 0},
		{"the same 4 s later, and it is garbage by now", 2434 * mib, 1000 * mib, 600 * mib},
		{"what is left", 2435 * mib, 600 * mib, 0},
		{"what is left 4 s later, all live", 2436 * mib, 600 * mib, 600 * mib},
		{"it is not tried again as soon: 2 s", 2437 * mib, 600 * mib, 0},
		{"4 s", 2438 * mib, 600 * mib, 0},
		{"the process works", 2838 * mib, 600 * mib, 0},
		{"6 s", 2839 * mib, 600 * mib, 0},
		{"8 s", 2840 * mib, 600 * mib, 600 * mib},
		{"it has grown", 2841 * mib, 1400 * mib, 500 * mib},
	} {
		if due := r.due(usage{step.allocated, step.resident}); due != (step.after != 0) {
			t.Errorf("%s: given back %t, want %t", step.what, due, !due)
		}
		if step.after != 0 {
			r.gave(step.resident, step.after)
		}
	}
}

var peak []byte

// TestReclaimGivesMemoryBack makes garbage, and waits until the operating system has it.
func TestReclaimGivesMemoryBack(t *testing.T) {
	peak = make([]byte, 2*reclaimFloor)
	for i := 0; i < len(peak); i += 4096 {
		peak[i] = 1
	}
	if u := memoryUsage(); u.resident < 2*reclaimFloor {
		t.Fatalf("the process has %d bytes, want those of the peak", u.resident)
	}
	peak = nil
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { reclaim(ctx, slog.New(slog.DiscardHandler)); close(done) }()
	defer func() { cancel(); <-done }()
	waitUntil(t, "given back", func() bool { return memoryUsage().resident < reclaimFloor })
}
