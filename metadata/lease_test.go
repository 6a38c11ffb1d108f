package metadata_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func TestLease(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
	const ttl = 10 * time.Second
	runA, runB := core.RunID{ID: core.NewID(t0)}, core.RunID{ID: core.NewID(t0)}
	acquire := func(host core.HostID, run core.RunID, second int, code core.Code, epoch uint64, expires int) metadata.LeaseRecord {
		t.Helper()
		l, err := metadata.AcquireLease(ctx, s, "work", host, run, at(second), ttl)
		if core.CodeOf(err) != code || l.Epoch != epoch || !l.Expires.Equal(at(expires)) {
			t.Fatalf("acquire by %s at %d: %+v %v; want code %q, epoch %d until %s", host, second, l, err, code, epoch, at(expires))
		}
		return l
	}
	renew := func(l metadata.LeaseRecord, second int, code core.Code) {
		t.Helper()
		if _, err := metadata.RenewLease(ctx, s, l, at(second), ttl); core.CodeOf(err) != code {
			t.Fatalf("renew at %d: %v, want code %q", second, err, code)
		}
	}
	renew(metadata.LeaseRecord{Name: "work"}, 0, core.CodeFenced)
	a := acquire("a", runA, 0, "", 1, 10)
	acquire("b", runB, 9, core.CodeConflict, 1, 10)
	acquire("a", runB, 9, core.CodeConflict, 1, 10) // another run of the same host is another holder
	acquire("a", runA, 5, "", 1, 15)
	renew(a, 7, "")
	acquire("b", runB, 16, core.CodeConflict, 1, 17)
	renew(a, 18, "") // expired, but nobody took it
	acquire("b", runB, 28, "", 2, 38)
	renew(a, 29, core.CodeFenced)
	if err := metadata.ReleaseLease(ctx, s, a); err != nil {
		t.Fatalf("release of a lost lease: %v", err)
	}
	b := acquire("b", runB, 30, "", 2, 40)
	if err := metadata.ReleaseLease(ctx, s, b); err != nil {
		t.Fatal(err)
	}
	renew(b, 31, core.CodeFenced)
	acquire("a", runA, 31, "", 3, 41)
}
