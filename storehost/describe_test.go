package storehost

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

func (s *testStore) describe() *pb.StoreDescription {
	s.t.Helper()
	resp, err := s.rpc.Describe(s.t.Context(), connect.NewRequest(&pb.DescribeRequest{}))
	must(s.t, err)
	return resp.Msg
}

func TestDescribe(t *testing.T) {
	s := startStore(t, "s1")
	d := s.describe()
	if d.Identity.Store != "s1" || len(d.Identity.Disk) == 0 || d.TotalBytes == 0 || d.FreeBytes > d.TotalBytes || d.RefusesAppends || d.OpenExtents != 0 {
		t.Fatalf("a fresh store describes itself as %v", d)
	}
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	s.dial().openAppend(extent("s1"))
	eventually(t, "two extents are open and bytes come in", func() bool {
		a.append(w.Batch(10, 1000), 0)
		a.awaitAck(w.Last)
		d = s.describe()
		return d.OpenExtents == 2 && d.AppendBytesPerSecond > 0 && d.SyncMicros > 0
	})
	s.fence(e, core.DiskID{})
	eventually(t, "the fenced one does not count", func() bool { return s.describe().OpenExtents == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, s.host.Run(ctx))
	if !s.describe().RefusesAppends {
		t.Fatal("a store that stops takes extents")
	}
}

// eventually asks again until ok, within patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); ; {
		if ok() {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
