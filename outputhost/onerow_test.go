package outputhost

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// oneLost is metadata where the replicas of one partition are away: its rows are not stored, all others are.
type oneLost struct {
	metadata.Store
	prefix string       // of the partition
	hangs  bool         // its rows fail by the deadline only
	puts   atomic.Int64 // rows of other partitions
}

func (m *oneLost) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	lost := &metadata.UnstoredError{Of: len(rows), Err: core.Errorf(core.CodeUnavailable, "no replica")}
	var stored []metadata.Row
	for i, r := range rows {
		if m.prefix != "" && strings.HasPrefix(r.Key.Partition, m.prefix) {
			lost.Rows = append(lost.Rows, i)
		} else {
			stored = append(stored, r)
		}
	}
	m.puts.Add(int64(len(stored)))
	if err := m.Store.PutAll(ctx, t, stored, c); err != nil || len(lost.Rows) == 0 {
		return err
	}
	if m.hangs {
		<-ctx.Done()
	}
	return lost
}

// TestSaver_ARowThatIsNotStoredHoldsUpNoOther: for a minute the checkpoint of one group cannot be written. Those of
// another one are written once for each change, and count; the first one may wait for the row that hangs.
func TestSaver_ARowThatIsNotStoredHoldsUpNoOther(t *testing.T) {
	for what, hangs := range map[string]bool{"fails": false, "hangs": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { loseOneRow(t, hangs) })
		})
	}
}

func loseOneRow(t *testing.T, hangs bool) {
	b := newHarness(t)
	_, first := b.group()
	_, second := b.group()
	if err := b.give(1, first, second); err != nil {
		t.Fatal(err)
	}
	bad, s := b.taken(first, 10)
	other, o := b.taken(second, 100)
	var log strings.Builder
	b.log = slog.New(slog.NewTextHandler(&log, nil))
	meta := &oneLost{Store: b.meta, prefix: bad.id.String(), hangs: hangs}
	b.deps.Meta = meta
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.saver.run(ctx) })
	defer wg.Wait()
	defer cancel()
	ack := func(g *group, s *share, seq core.Seq) {
		g.mu.Lock()
		s.rules.Ack(seq, 1, 1, time.Now(), nil)
		g.mu.Unlock()
		g.pump()
	}
	unsaved := func(g *group) int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.unsavedSharesLocked()
	}
	ack(bad, s, 1)
	ack(other, o, 1)
	time.Sleep(b.cfg.CheckpointEvery + b.cfg.CallTimeout)
	for i := range 40 {
		ack(other, o, core.Seq(i+2))
		time.Sleep(b.cfg.CheckpointEvery + 100*time.Millisecond)
		if n := unsaved(other); n > 0 {
			t.Fatalf("%d shares of the other group are unsaved %s after change %d", n, b.cfg.CheckpointEvery, i+2)
		}
	}
	if n := unsaved(bad); n != 1 {
		t.Errorf("%d shares of the group are unsaved, want 1", n)
	}
	if n := meta.puts.Load(); n > 41 {
		t.Errorf("41 changes of the other group were stored %d times", n)
	}
	if fails, err := b.saver.failing(); !fails || err == nil {
		t.Errorf("that a checkpoint cannot be written is not told: %v, %v", fails, err)
	}
	cancel()
	wg.Wait()
	if warned, over := strings.Count(log.String(), "are not saved"), strings.Count(log.String(), "saved again"); warned > 6 || over > 0 {
		t.Errorf("%d warnings in a minute, and that it is over %d times:\n%s", warned, over, log.String())
	}
	meta.prefix = ""
	b.saveAll()
	if n, over := unsaved(bad), strings.Count(log.String(), "saved again"); n > 0 || over != 1 {
		t.Errorf("afterwards %d shares are unsaved; that it is over is said %d times", n, over)
	}
}

// TestGroupWrite_EachRowCountsForItself: two extents of a group are two partitions. The rows of shares that were given
// away come first.
func TestGroupWrite_EachRowCountsForItself(t *testing.T) {
	parts := []saved{{token: 1}, {token: 2}}
	w := groupWrite{first: 5, end: 8, late: []lateRow{{}}, parts: parts}
	for _, c := range []struct {
		unstored     []int
		stored, lost int
		late         bool
		rows         int
	}{
		{nil, 2, 0, false, 3},
		{[]int{0, 4, 8}, 2, 0, false, 3},
		{[]int{5}, 2, 0, true, 2},
		{[]int{4, 6, 9}, 1, 1, false, 2},
		{[]int{5, 6, 7}, 0, 2, true, 0},
	} {
		stored, lost, late := w.divide(c.unstored)
		if len(stored) != c.stored || len(lost) != c.lost || (len(late) > 0) != c.late || w.stored(c.unstored) != c.rows {
			t.Errorf("without the rows %v: %d parts are stored, %d are not, late %v, %d rows; want %+v", c.unstored, len(stored), len(lost), late, w.stored(c.unstored), c)
		}
	}
	if stored, lost, _ := w.divide([]int{6}); len(stored) != 1 || stored[0].token != 2 || lost[0].token != 1 {
		t.Errorf("the first part is not stored: %v, %v", stored, lost)
	}
}

// TestHandover_ShareThatCannotBeSavedHoldsUpNoOther: two queues' shares are given away, and that of one cannot be
// saved. The other one's counts as given away, and the first one's list is to be sent again.
func TestHandover_ShareThatCannotBeSavedHoldsUpNoOther(t *testing.T) {
	b := newHarness(t)
	r1, first := b.group()
	r2, second := b.group()
	if err := b.give(1, first, second); err != nil {
		t.Fatal(err)
	}
	meta := &oneLost{Store: b.meta, prefix: r1.ID.String()}
	b.deps.Meta = meta
	lists := func() []*pb.AssignmentList {
		return []*pb.AssignmentList{
			{Queue: r1.Queue.ID[:], Version: versionBy("controller", 2)},
			{Queue: r2.Queue.ID[:], Version: versionBy("controller", 2)},
		}
	}
	check := func(when string, want bool) {
		t.Helper()
		answers, err := b.apply(t.Context(), lists())
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for i, w := range []bool{want, true} {
			if a := answers[i]; (a.failed == nil) != w || (a.newest != core.ListVersion{}) != w {
				t.Errorf("%s: queue %d answers %v, %v; want that it is given away: %v", when, i+1, a.newest, a.failed, w)
			}
		}
	}
	check("without its replicas", false)
	if b.saver.noMajority(b.deps.Now()) {
		t.Error("all wait for a majority because of one row")
	}
	check("still", false)
	meta.prefix = ""
	check("with them", true)
}
