package inputhost

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/wire"
)

// anyTime draws a record's time, and says where it goes.
func anyTime(t *rapid.T, r *wire.Record, now int64) (lane int) {
	lane = rapid.IntRange(0, allLanes-1).Draw(t, "lane")
	least, most := int64(1), core.HorizonAt(0).Reach().Milliseconds()
	switch {
	case lane == atOnceLane:
		if rapid.Bool().Draw(t, "plain") {
			return lane
		}
		least, most = 1-now, 0
	case lane == tooFarLane:
		least, most = core.MaxAhead.Milliseconds()+1, wire.MaxMillis-now
	case lane > 0:
		least, most = core.HorizonAt(lane-1).Reach().Milliseconds()+1, core.HorizonAt(lane).Reach().Milliseconds()
	}
	ahead := rapid.Int64Range(least, most).Draw(t, "ahead")
	if ahead > 0 && rapid.Bool().Draw(t, "delay") {
		r.Delay = ahead
	} else {
		r.DeliverAt = now + ahead
	}
	return lane
}

// TestSplit_EachRecordOnce: whatever a chunk holds, each record is in the chunk of its lane, under its number, in
// order, and unchanged but for its delay; the buffers are given back.
func TestSplit_EachRecordOnce(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	rapid.Check(t, func(t *rapid.T) {
		type want struct {
			Number  uint64
			Payload string
			Due     int64
		}
		var wants [allLanes][]want
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		atOnce := rapid.SampledFrom([]int{atOnceLane, nearLane}).Draw(t, "at once")
		var records []byte
		count := rapid.IntRange(1, 60).Draw(t, "count")
		for i := range count {
			r := wire.Record{Payload: fmt.Appendf(nil, "%d", i), Key: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "key")}
			lane := anyTime(t, &r, now.UnixMilli())
			var err error
			if records, err = wire.AppendRecord(records, &r); err != nil {
				t.Fatal(err)
			}
			if lane == atOnceLane {
				lane = atOnce
			}
			due := r.DeliverAt
			if r.Delay > 0 {
				due = now.UnixMilli() + r.Delay
			}
			wants[lane] = append(wants[lane], want{first + uint64(i), fmt.Sprint(i), due})
		}
		hold := &counted{refs: 1}
		size := 0
		for lane, x := range split(writer.Chunk{Records: records, Hold: hold, Count: uint32(count), First: first, Arrived: now}, now, atOnce) {
			var got []want
			var numbers []uint64
			if x.Part != nil {
				for _, run := range x.Part.Runs {
					for i := range run.Count {
						numbers = append(numbers, run.First+uint64(i))
					}
				}
			} else {
				for i := range x.Count {
					numbers = append(numbers, x.First+uint64(i))
				}
			}
			latest := int64(0)
			size += len(x.Records)
			for rest := bytes.Clone(x.Records); len(rest) > 0; {
				var r wire.Record
				n, err := wire.DecodeRecord(rest, &r)
				if err != nil {
					t.Fatalf("lane %d: %v", lane, err)
				}
				rest = rest[n:]
				due := r.DeliverAt
				if r.Delay > 0 && lane != tooFarLane {
					t.Errorf("lane %d: a delay of %d is left", lane, r.Delay)
				} else if r.Delay > 0 {
					due = now.UnixMilli() + r.Delay
				}
				if len(numbers) == len(got) {
					t.Fatalf("lane %d has more records than numbers", lane)
				}
				got = append(got, want{numbers[len(got)], string(r.Payload), due})
				latest = max(latest, due)
			}
			if diff := cmp.Diff(wants[lane], got); diff != "" || len(got) != int(x.Count) || len(numbers) != len(got) {
				t.Fatalf("lane %d, count %d, %d numbers (-want +got):\n%s", lane, x.Count, len(numbers), diff)
			}
			if lane < core.Horizons && x.Count > 0 && x.Part.Due != latest {
				t.Errorf("lane %d says %d for the latest, want %d", lane, x.Part.Due, latest)
			}
			if x.Count > 0 {
				x.Hold.Release()
			}
		}
		if size != len(records) || hold.refs != 0 {
			t.Errorf("%d bytes of %d, %d references left", size, len(records), hold.refs)
		}
	})
}

type counted struct{ refs int }

func (c *counted) Retain()  { c.refs++ }
func (c *counted) Release() { c.refs-- }
