package extentlogtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

var errDevice = errors.New("input/output error")

// RunFaults fails one write, or one sync, of the files that end in journal and are written by such a call, each in
// turn, and goes on as if nothing had been: nothing may succeed after it, also though the disk works again, and after a
// power cut everything acknowledged before it is there.
func RunFaults(t *testing.T, open OpenFunc, journal string, write errorfs.OpKind) {
	for name, kinds := range map[string][]errorfs.OpKind{
		"Sync":  {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
		"Write": {write},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				if n > 500 {
					t.Fatal("the workload never ends without an error")
				}
				if !faultAt(t, open, journal, kinds, n) {
					if n < 15 {
						t.Fatalf("the workload writes and syncs %d times only", n-1)
					}
					return
				}
			}
		})
	}
}

// faultAt runs a workload whose n-th operation fails; false when it has less.
func faultAt(t *testing.T, open OpenFunc, journal string, kinds []errorfs.OpKind, n int) bool {
	t.Helper()
	disk := vfs.NewCrashableMem()
	var count atomic.Int64
	var armed atomic.Bool
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !armed.Load() || path.Ext(op.Path) != journal {
			return nil
		}
		for _, k := range kinds {
			if op.Kind == k && count.Add(1) == int64(n) {
				return errDevice
			}
		}
		return nil
	}))
	l, err := open(fs)
	must(t, err)
	armed.Store(true)
	w := &faulty{t: t, log: l, what: fmt.Sprintf("operation %d", n), promised: make(map[core.ExtentID]promise)}
	w.run()
	failed := w.failed
	armed.Store(false)
	if failed != nil {
		w.expectRefusals()
	}
	c := crash{disk.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 1))}), w.promised}
	if err := l.Close(); err != nil && failed == nil {
		t.Fatal(err)
	}
	c.verify(t, open, w.what)
	return failed != nil
}

// faulty is a workload, one call after another, that notes what was promised and the first error.
type faulty struct {
	t        *testing.T
	log      extentlog.Log
	what     string
	promised map[core.ExtentID]promise
	failed   error
}

// did notes a call's outcome. After the first error all others must fail.
func (w *faulty) did(call string, err error, promised func()) {
	w.t.Helper()
	switch {
	case err == nil && w.failed != nil:
		w.t.Fatalf("%s: %s succeeded after %v", w.what, call, w.failed)
	case err == nil:
		promised()
	case w.failed == nil:
		if core.CodeOf(err) != core.CodeUnavailable {
			w.t.Fatalf("%s: %s: got %v, want %q", w.what, call, err, core.CodeUnavailable)
		}
		w.failed = err
	}
}

func (w *faulty) run() {
	for i := range 3 {
		e, writer := Extent(), new(Writer)
		p := promise{extent: e}
		note := func() { w.promised[e.ID] = p }
		w.did("open", w.log.Open(e), func() { p.opened = true; note() })
		for range 4 {
			batch := writer.Batch(2, 300)
			p.bytes = append(bytes.Clone(p.bytes), batch...)
			last, err := Append(w.log, e.ID, batch, 0)
			w.did("append", err, func() { p.last = last; note() })
		}
		s, err := w.log.Fence(e, 0)
		w.did("fence", err, func() { p.fenced = true; note() })
		if i == 0 {
			continue
		}
		copied := writer.Batch(1, 300)
		p.bytes = append(bytes.Clone(p.bytes), copied...)
		last, err := w.log.Copy(e.ID, copied)
		w.did("copy", err, func() { p.last = last; note() })
		if w.failed != nil && s.Last+1 != writer.Last {
			return
		}
		w.did("seal", w.log.Seal(e.ID, writer.Last, writer.Checksum, 1), func() { p.sealed = true; note() })
		if i == 2 {
			w.did("remove", w.log.Remove(e.ID, 1), func() { delete(w.promised, e.ID) })
		}
	}
}

// expectRefusals tries each call that changes something once more.
func (w *faulty) expectRefusals() {
	e := Extent()
	_, fence := w.log.Fence(e, 0)
	for call, err := range map[string]error{"open": w.log.Open(e), "fence": fence, "remove": w.log.Remove(e.ID, 0)} {
		if core.CodeOf(err) != core.CodeUnavailable {
			w.t.Fatalf("%s: %s after %v: got %v, want %q", w.what, call, w.failed, err, core.CodeUnavailable)
		}
	}
	if !w.log.Vitals().Refuses {
		w.t.Fatalf("%s: the log does not say that it refuses", w.what)
	}
}
