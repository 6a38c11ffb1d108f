package storehost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
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

// TestDescribe_OfADiskThatHangs: the store takes no extents soon, and counts as gone later. Both end with the hang.
func TestDescribe_OfADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, disk, stop, ran := hostOn(t)
		describe := func() (*pb.StoreDescription, error) {
			resp, err := (&service{h}).Describe(t.Context(), connect.NewRequest(&pb.DescribeRequest{}))
			if err != nil {
				return nil, err
			}
			return resp.Msg, nil
		}
		log := h.current()
		e, w := extent("s1"), new(extentlogtest.Writer)
		must(t, log.Open(e))
		release := disk.Hang()
		appended := make(chan error, 1)
		log.Append(e.ID, w.Batch(1, 100), 0, func(_ core.Seq, err error) { appended <- err })
		time.Sleep(extentlog.HangsAt + time.Millisecond)
		if d, err := describe(); err != nil || !d.RefusesAppends || time.Duration(d.SyncMicros)*time.Microsecond < extentlog.HangsAt {
			t.Errorf("after %s: %v, %v; want that it refuses appends", extentlog.HangsAt, d, err)
		}
		time.Sleep(goneAt - extentlog.HangsAt)
		if d, err := describe(); core.CodeOf(convert.FromRPC(err)) != core.CodeUnavailable {
			t.Errorf("after %s: %v, %v; want %q", goneAt, d, err, core.CodeUnavailable)
		}
		release()
		must(t, <-appended)
		synctest.Wait()
		if d, err := describe(); err != nil || d.RefusesAppends {
			t.Errorf("afterwards: %v, %v; want that it takes appends", d, err)
		}
		stop()
		must(t, <-ran)
		must(t, h.Stop(t.Context()))
	})
}
