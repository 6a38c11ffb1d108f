package storehost

import (
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
)

// TestDueReader_SendsEachOnceWhenItIsDue publishes, commits, lets time pass and grants credit in any order, with
// records from tiny to larger than what is read ahead.
func TestDueReader_SendsEachOnceWhenItIsDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log, w := new(timerLog), new(extentlogtest.Writer)
		var known acklevel.Window
		for range rapid.IntRange(0, 10).Draw(t, "known") {
			known.Ack(core.Seq(rapid.IntRange(1, 60).Draw(t, "seq")))
		}
		encoded, _ := known.Append(nil)
		d, err := newDueReader(encoded)
		if err != nil {
			t.Fatal(err)
		}
		due := make(map[core.Seq]int64)
		sent := make(map[core.Seq]bool)
		now, committed := int64(10_000), core.Seq(0)
		send := func(credit int64) {
			for round := 0; ; round++ {
				again, err := d.fill(log, core.ExtentID{}, committed, false, now)
				if err != nil || round > 10_000 {
					t.Fatalf("round %d: %v", round, err)
				}
				head, records := d.frame(7, now, credit)
				if head != nil {
					f, _, err := wire.NextFrame(append(head, records...))
					if err != nil {
						t.Fatal(err)
					}
					var body wire.Due
					if err := body.Decode(f.Body); err != nil {
						t.Fatal(err)
					}
					credit -= int64(len(f.Body))
					last := extentlog.DueKey{At: -1}
					for _, e := range body.Entries {
						k := extentlog.DueKey{At: due[e.Seq], Seq: e.Seq}
						switch {
						case sent[e.Seq]:
							t.Fatalf("seq %d is sent twice", e.Seq)
						case known.Done(e.Seq):
							t.Fatalf("seq %d is sent though it is known", e.Seq)
						case e.Seq > committed:
							t.Fatalf("seq %d is sent, committed is %d", e.Seq, committed)
						case k.At > now:
							t.Fatalf("seq %d is sent %d ms early", e.Seq, k.At-now)
						case !k.Beyond(last):
							t.Fatalf("%+v follows %+v in a frame", k, last)
						}
						sent[e.Seq], last = true, k
					}
					if more := f.Flags&wire.FlagMore != 0; more && credit > 0 {
						t.Fatalf("more is due than a credit of which %d is left", credit)
					}
				}
				if !again && head == nil || credit <= 0 {
					return
				}
			}
		}
		check := func(what string) {
			for seq := core.Seq(1); seq <= committed; seq++ {
				if due[seq] <= now && !sent[seq] && !known.Done(seq) {
					t.Fatalf("%s: seq %d, due %d ms ago, was not sent", what, seq, now-due[seq])
				}
			}
			if at := d.wakeAt(); !at.IsZero() && at.UnixMilli() <= now {
				t.Fatalf("%s: wakes at %d, it is %d", what, at.UnixMilli(), now)
			}
			next := int64(math.MaxInt64)
			for seq := core.Seq(1); seq <= committed; seq++ {
				if !sent[seq] && !known.Done(seq) {
					next = min(next, due[seq])
				}
			}
			if at := d.wakeAt(); next < math.MaxInt64 && (at.IsZero() || at.UnixMilli() > next) {
				t.Fatalf("%s: wakes at %v, the next is due at %d", what, at, next)
			}
			if d.over(committed) && next < math.MaxInt64 {
				t.Fatalf("%s: it is over, the next is due at %d", what, next)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				var at []int64
				size := rapid.SampledFrom([]int{0, 0, 0, 0, 50, 50, 50, 50, 3000, 3000, 60_000, 600_000}).Draw(t, "size")
				for range rapid.IntRange(1, 5).Draw(t, "records") {
					v := max(0, now+int64(rapid.SampledFrom([]int{-20_000, -100, 0, 1, 50, 1000, 1999, 2000, 2001, 5000, 90_000}).Draw(t, "in")))
					due[w.Last+core.Seq(len(at))+1] = v
					at = append(at, v)
				}
				log.add(w, size, at...)
			},
			"commit": func(t *rapid.T) {
				ends := []core.Seq{}
				for _, batch := range log.batches {
					if b, err := wire.DecodeBatch(batch); err == nil && b.Last() > committed {
						ends = append(ends, b.Last())
					}
				}
				if len(ends) > 0 {
					committed = rapid.SampledFrom(ends).Draw(t, "up to")
				}
			},
			"pass":  func(t *rapid.T) { now += int64(rapid.IntRange(0, 3000).Draw(t, "ms")) },
			"send":  func(t *rapid.T) { send(int64(rapid.IntRange(1, 500_000).Draw(t, "credit"))) },
			"flood": func(t *rapid.T) { send(1 << 30); check("with credit for all") },
		})
		committed = w.Last
		now += 100_000
		send(1 << 30)
		if check("at the end"); !d.over(committed) {
			t.Fatal("all was sent, and it is not over")
		}
	})
}

// openTimers opens a read of a timer extent.
func (l *link) openTimers(e core.Extent, known []byte, credit int) *stream {
	l.t.Helper()
	s := l.stream()
	s.sendProto(wire.TypeOpenRead, &pb.OpenRead{Extent: convert.ExtentToProto(e), From: 99, Credit: uint64(credit), Known: known})
	return s
}

// due takes frames until n records came, and answers their seqs.
func (s *stream) due(n int) (seqs []core.Seq, frames []wire.Frame) {
	s.l.t.Helper()
	for len(seqs) < n {
		f := s.receive()
		if f.Type == wire.TypeReadCommitted {
			continue
		}
		if f.Type != wire.TypeDue {
			s.l.t.Fatalf("got frame %d %v after %v, want due records", f.Type, describe(f), seqs)
		}
		var d wire.Due
		must(s.l.t, d.Decode(f.Body))
		count, err := wire.CheckRecords(d.Records, wire.MaxPayload)
		must(s.l.t, err)
		if count != len(d.Entries) {
			s.l.t.Fatalf("a frame of %d records says %d", count, len(d.Entries))
		}
		for _, e := range d.Entries {
			seqs = append(seqs, e.Seq)
		}
		frames = append(frames, f)
	}
	return seqs, frames
}

func timerExtent(stores ...core.HostID) core.Extent {
	e := extent(stores...)
	e.Kind = core.KindTimer
	return e
}

func TestDue_OrderCreditAndEnd(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e, w := timerExtent("s1"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	a.append(w.Timers(1000, 400, 200, 300), 0)
	a.awaitAck(3)
	r := l.openTimers(e, nil, 1)
	a.append(w.Timers(1000, 100), 0) // due before all others, and not committed
	a.awaitAck(4)
	a.sendPosition(wire.TypeCommitted, 3)
	if got, frames := r.due(1); !slices.Equal(got, []core.Seq{2}) || frames[0].Flags != wire.FlagMore {
		t.Fatalf("got %v, flags %d; want the one that overdraws, and to be told that there are more", got, frames[0].Flags)
	}
	r.sendPosition(wire.TypeReadCredit, 1<<20)
	if got, frames := r.due(2); !slices.Equal(got, []core.Seq{3, 1}) || frames[len(frames)-1].Flags != 0 {
		t.Fatalf("got %v, flags %d", got, frames[len(frames)-1].Flags)
	}
	a.sendPosition(wire.TypeCommitted, 4)
	if got, _ := r.due(1); !slices.Equal(got, []core.Seq{4}) {
		t.Fatalf("what commits late and is due before: got %v", got)
	}
	s.fence(e, core.DiskID{})
	must(t, s.seal(e, w.Last, w.Checksum))
	for f := r.receive(); f.Type != wire.TypeReadSealed; f = r.receive() {
		if f.Type != wire.TypeReadCommitted {
			t.Fatalf("got frame %d %v, want the end", f.Type, describe(f))
		}
	}
	var known acklevel.Window
	known.Ack(1)
	known.Ack(4)
	b, _ := known.Append(nil)
	other := l.openTimers(e, b, 1<<20)
	if got, _ := other.due(2); !slices.Equal(got, []core.Seq{2, 3}) {
		t.Fatalf("another stream that knows two: got %v", got)
	}
	other.expectEnd(4)
}

// expectEnd takes the end of the extent, behind what is told of the committed seq.
func (s *stream) expectEnd(l uint64) {
	s.l.t.Helper()
	f := s.receive()
	for f.Type == wire.TypeReadCommitted {
		f = s.receive()
	}
	if got, err := wire.DecodePosition(f.Body); f.Type != wire.TypeReadSealed || err != nil || got != l {
		s.l.t.Fatalf("got frame %d %v, %d; want the end at %d", f.Type, describe(f), got, l)
	}
}

func TestDue_WhatIsNotDueIsNotSent(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	s := &testStore{t: t, dir: t.TempDir() + "/store", self: "s1", now: func() time.Time { return now }}
	s.start()
	t.Cleanup(func() { s.stop() })
	l := s.dial()
	e, w := timerExtent("s1"), new(extentlogtest.Writer)
	a := l.openAppend(e)
	a.append(w.Timers(10, 1_000_001, 999_999, 1_000_000, 2_000_000, 0), 0)
	a.awaitAck(5)
	a.sendPosition(wire.TypeCommitted, 5)
	r := l.openTimers(e, nil, 1<<20)
	if got, _ := r.due(3); !slices.Equal(got, []core.Seq{5, 2, 3}) {
		t.Fatalf("got %v", got)
	}
	s.fence(e, core.DiskID{})
	must(t, s.seal(e, w.Last, w.Checksum)) // wakes it: it has no end while something is not due
	l.openTimers(e, nil, 1<<20).due(3)     // by the same pusher, after anything it had for r
	for len(r.frames) > 0 {
		if f := r.receive(); f.Type != wire.TypeReadCommitted {
			t.Fatalf("frame %d came", f.Type)
		}
	}
}

func TestDue_BadWindows(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	e := timerExtent("s1")
	l.openAppend(e)
	for what, test := range map[string]struct {
		known []byte
		code  core.Code
	}{
		"damaged": {[]byte{1}, core.CodeBadFrame},
		"a tail":  {[]byte{1, 0, 0}, core.CodeBadFrame},
		"long":    {make([]byte, wire.MaxKnown+1), core.CodeTooLarge},
	} {
		r := l.stream()
		body, err := proto.Marshal(&pb.OpenRead{Extent: convert.ExtentToProto(e), Known: test.known})
		must(t, err)
		r.send(wire.TypeOpenRead, body)
		f := r.receive()
		if err := convert.FrameError(f.Body); f.Type != wire.TypeRefused || core.CodeOf(err) != test.code {
			t.Errorf("%s: got frame %d, %v, want %s", what, f.Type, err, test.code)
		}
	}
}

// BenchmarkDueReader emits a million records of which each has its time, read from the index in pieces.
func BenchmarkDueReader(b *testing.B) {
	const n = 20_000
	log, w := new(timerLog), new(extentlogtest.Writer)
	due := make([]int64, n)
	for i := range due {
		due[i] = int64(i)
	}
	log.add(w, 100, due...)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += n {
		d, err := newDueReader(nil)
		if err != nil {
			b.Fatal(err)
		}
		for sent := 0; sent < n; {
			if _, err := d.fill(log, core.ExtentID{}, n, false, n); err != nil {
				b.Fatal(err)
			}
			d.frame(1, n, 1<<30)
			sent += len(d.entries)
		}
	}
}
