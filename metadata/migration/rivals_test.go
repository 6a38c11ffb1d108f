package migration

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

var second = Call{Cluster: cluster, Copier: core.NewID(time.UnixMilli(4))}

// TestCopy_ASecondCallEndsTheFirst: a copy of the data directory is copied at the same time. The second call ends, and
// a server starts, while the first one is between two windows.
func TestCopy_ASecondCallEndsTheFirst(t *testing.T) {
	ctx, from, to := t.Context(), some(4500), newTarget(t)
	loads := 0
	_, err := Copy(ctx, from, to, call, func(p Progress) {
		if p.Rows != window || p.Check {
			return
		}
		if _, err := Copy(ctx, from, to, second, quiet); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "the first call finishes the copy of the second", Finish(ctx, to, call), core.CodeConflict, "has begun since")
		if err := Finish(ctx, to, second); err != nil {
			t.Fatal(err)
		}
		if err := Use(ctx, to); err != nil {
			t.Fatal(err)
		}
		loads = to.loads
	})
	wantCode(t, "the first call", err, core.CodeConflict, "is in use")
	if to.loads != loads {
		t.Errorf("%d windows were written after a server had started", to.loads-loads)
	}
}

// TestCopy_UndoneMeanwhile: nothing more is written.
func TestCopy_UndoneMeanwhile(t *testing.T) {
	ctx, to := t.Context(), newTarget(t)
	_, err := Copy(ctx, some(4500), to, call, func(p Progress) {
		if p.Rows < window {
			return
		}
		if err := Undo(ctx, to, cluster, false); err != nil {
			t.Fatal(err)
		}
	})
	wantCode(t, "the copy", err, core.CodeConflict, "is undone")
	if to.loads != 1 {
		t.Errorf("%d windows were written, want the one of before", to.loads)
	}
}

// TestCopy_OfMetadataThatWereSetAside: they were copied to another store, which a server may have used since.
func TestCopy_OfMetadataThatWereSetAside(t *testing.T) {
	ctx, from, to := t.Context(), some(2500), newTarget(t)
	aside := second
	aside.Aside = true
	_, err := Copy(ctx, from, to, aside, quiet)
	wantCode(t, "into an empty store", err, core.CodeConflict, "may be out of date")
	to.fail = func(load int) error {
		if load == 2 {
			return core.Errorf(core.CodeInternal, "a node refuses")
		}
		return nil
	}
	_, err = Copy(ctx, from, to, call, quiet)
	wantCode(t, "the copy that is interrupted", err, core.CodeInternal, "a node refuses")
	_, err = Copy(ctx, from, to, aside, quiet)
	wantCode(t, "into a store whose copy was interrupted before it was compared", err, core.CodeConflict, "may be out of date")
	wantCode(t, "undone by that store", Undo(ctx, to, cluster, true), core.CodeConflict, "may be out of date")
	if _, err = Copy(ctx, from, to, call, quiet); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the caller was interrupted after it had set them aside, and once more
		if _, err = Copy(ctx, from, to, aside, quiet); err != nil {
			t.Fatal(err)
		}
	}
	if err := Finish(ctx, to, aside); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{Undo(ctx, to, cluster, true), Undo(ctx, to, cluster, true), Restored(ctx, to)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "undone once more, after another copy elsewhere", Undo(ctx, to, cluster, true), core.CodeConflict, "may be out of date")
}

// started is a store on which a server starts right after it was found empty.
type started struct {
	*target
	looks int
}

func (s *started) Page(ctx context.Context, place []byte) ([]metadata.Stored, []byte, error) {
	rows, next, err := s.target.Page(ctx, place)
	if s.looks++; s.looks == 1 {
		r := some(1)[0]
		s.rows[PositionOf(r)] = r
	}
	return rows, next, err
}

// TestCopy_AServerStartsMeanwhile: the copy gives way, and the server may use the store.
func TestCopy_AServerStartsMeanwhile(t *testing.T) {
	to := &started{target: newTarget(t)}
	_, err := Copy(t.Context(), some(10), to, call, quiet)
	wantCode(t, "the copy", err, core.CodeConflict, "is not empty")
	if err := Use(t.Context(), to); err != nil || to.loads > 0 {
		t.Errorf("the server: %v; %d windows were written", err, to.loads)
	}
}
