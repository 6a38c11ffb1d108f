package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

const queue = "/t/a"

var (
	began  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	extent = core.ExtentID{ID: core.NewID(began)}

	retryExtent = core.ExtentID{ID: core.NewID(began)}
)

// moved is a message in the retry queue of a group.
func moved(seq core.Seq) core.Receipt { return core.Receipt{Extent: retryExtent, Seq: seq} }

func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

func key(seq uint64) Key { return Key{queue, "p", seq} }

// delivery is a first delivery of message seq that was acknowledged.
func delivery(group string, seq uint64, seconds float64) Received {
	return Received{
		Key: key(seq), Group: group, Consumer: "c", CRC: uint32(seq) * 7, Receipt: core.Receipt{Extent: extent, Seq: core.Seq(seq)},
		Attempt: 1, Settled: Done, At: at(seconds),
	}
}

// change returns a delivery with something else.
func (r Received) change(f func(*Received)) Received {
	f(&r)
	return r
}

// good is a run of ten messages and two groups with nothing wrong: 3 was nacked and came again; 4 was dropped, was
// given back and died; 9 has an unknown outcome and is stored, 10 is not; 8 failed. One crash at 100 s.
func good() *History {
	h := &History{
		Groups:  []Left{{Queue: queue, Group: "g", Dead: 1}, {Queue: queue, Group: "h"}},
		Crashes: []Crash{{What: "server", From: at(100), To: at(101)}},
	}
	for seq := range uint64(10) {
		p := Published{Key: key(seq + 1), CRC: uint32(seq+1) * 7, Outcome: Acked, At: at(float64(seq))}
		switch p.Seq {
		case 8:
			p.Outcome = Failed
		case 9, 10:
			p.Outcome = Unknown
		}
		h.Published = append(h.Published, p)
		if p.Seq == 8 || p.Seq == 10 {
			continue
		}
		for _, g := range []string{"g", "h"} {
			h.Received = append(h.Received, delivery(g, p.Seq, 20+float64(seq)))
		}
	}
	again := func(seq uint64, attempt int, settled Settled, seconds float64) {
		h.Received = append(h.Received, delivery("g", seq, seconds).change(func(r *Received) { r.Attempt, r.Settled = attempt, settled }))
	}
	h.first("g", 3).Settled = Back
	again(3, 2, Done, 40)
	h.first("g", 4).Settled = Dropped
	again(4, 2, Back, 41)
	again(4, 2, Dead, 42)
	return h
}

// first is the first delivery of a message to a group.
func (h *History) first(group string, seq uint64) *Received {
	i := slices.IndexFunc(h.Received, func(r Received) bool { return r.Group == group && r.Seq == seq })
	return &h.Received[i]
}

func TestCheck_GoodHistory(t *testing.T) {
	r := Check(good(), time.Second)
	if !r.OK() {
		t.Errorf("findings in a good history:\n%s", r)
	}
	want := []Count{
		{Queue: queue, Group: "g", Acked: 7, Received: 8, Dead: 1, Retries: 2},
		{Queue: queue, Group: "h", Acked: 7, Received: 8},
	}
	if diff := cmp.Diff(want, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// TestCheck_Sabotage breaks the good history in each way and wants exactly this finding.
func TestCheck_Sabotage(t *testing.T) {
	add := func(h *History, r Received) { h.Received = append(h.Received, r) }
	for name, c := range map[string]struct {
		kind     Kind
		group    string
		seq      uint64
		sabotage func(h *History)
	}{
		"lost by one group": {Lost, "h", 5, func(h *History) {
			h.Received = slices.DeleteFunc(h.Received, func(r Received) bool { return r.Group == "h" && r.Seq == 5 })
		}},
		"lost after a nack": {Lost, "h", 6, func(h *History) { h.first("h", 6).Settled = Back }},
		"lost with a consumer": {Lost, "h", 6, func(h *History) {
			h.first("h", 6).Settled = Dropped
		}},
		"invented":             {Invented, "g", 99, func(h *History) { add(h, delivery("g", 99, 50)) }},
		"a publish had failed": {Denied, "g", 8, func(h *History) { add(h, delivery("g", 8, 50)) }},
		"corrupted":            {Corrupted, "h", 2, func(h *History) { h.first("h", 2).CRC ^= 1 }},
		"duplicated": {Duplicated, "h", 2, func(h *History) {
			add(h, delivery("h", 2, 60).change(func(r *Received) { r.Attempt = 2 }))
		}},
		"duplicated long before a crash": {Duplicated, "h", 2, func(h *History) {
			add(h, delivery("h", 2, 98.5).change(func(r *Received) { r.Attempt = 2 }))
		}},
		"stored twice": {Duplicated, "h", 2, func(h *History) {
			add(h, delivery("h", 2, 60).change(func(r *Received) { r.Receipt.Seq = 50 }))
		}},
		"lost after it was parked": {Lost, "h", 6, func(h *History) { h.first("h", 6).Settled = RetryQueued }},
		"parked in two places": {Duplicated, "h", 2, func(h *History) {
			h.first("h", 2).Settled = RetryQueued
			add(h, delivery("h", 2, 60).change(func(r *Received) { r.Receipt, r.Attempt = moved(50), 2 }))
			add(h, delivery("h", 2, 61).change(func(r *Received) { r.Receipt.Seq = 51 }))
		}},
		"parked, its attempts begun anew": {Miscounted, "h", 2, func(h *History) {
			h.first("h", 2).Settled = RetryQueued
			add(h, delivery("h", 2, 60).change(func(r *Received) { r.Receipt.Seq = 50 }))
		}},
		"attempt not counted":  {Miscounted, "g", 3, func(h *History) { h.Received[len(h.Received)-3].Attempt = 1 }},
		"attempt counted late": {Miscounted, "h", 7, func(h *History) { h.first("h", 7).Attempt = 2 }},
		"back from the dead":   {Resurrected, "g", 4, func(h *History) { add(h, delivery("g", 4, 50).change(func(r *Received) { r.Attempt = 3 })) }},
		"stuck":                {Stuck, "h", 0, func(h *History) { h.Groups[1].Undone = 3 }},
		"dead and not found":   {Stuck, "h", 0, func(h *History) { h.Groups[1].Dead = 1 }},
		"ledger forked":        {Forked, "", 2, func(h *History) { h.Published = append(h.Published, h.Published[1]) }},
		"a group of no history": {Invented, "x", 2, func(h *History) {
			add(h, delivery("x", 2, 50))
		}},
	} {
		h := good()
		c.sabotage(h)
		got := Check(h, time.Second).Findings
		if len(got) != 1 || got[0].Kind != c.kind || got[0].Group != c.group || got[0].Key.Seq != c.seq {
			t.Errorf("%s: got %v, want one %s of group %q, seq %d", name, got, c.kind, c.group, c.seq)
		}
	}
}

// TestCheck_LateAck has a message come again whose ack may not have counted, and one that does not.
func TestCheck_LateAck(t *testing.T) {
	h := good()
	h.first("g", 2).Settled, h.first("h", 2).Settled = Late, Late
	h.Received = append(h.Received, delivery("h", 2, 60).change(func(r *Received) { r.Attempt = 2 }))
	// One that stood still sees its first attempt of 5 after others are through with it, and is the only one who sees 6.
	h.Received = append(h.Received, delivery("h", 5, 80).change(func(r *Received) { r.Settled = Stale }))
	h.first("h", 6).Settled = Stale
	r := Check(h, time.Second)
	if !r.OK() || r.Counts[1].Duplicates != 0 || r.Counts[1].Retries != 3 {
		t.Errorf("a late ack:\n%s", r)
	}
	h.Received = append(h.Received, delivery("h", 2, 70).change(func(r *Received) { r.Attempt = 3 }))
	if r := Check(h, time.Second); len(r.Of(Duplicated)) != 1 {
		t.Errorf("a message that came again after an ack in time:\n%s", r)
	}
}

// TestCheck_Crash has duplicates that a crash explains.
func TestCheck_Crash(t *testing.T) {
	h := good()
	h.Received = append(h.Received,
		delivery("g", 2, 102), // forgotten first attempt
		delivery("h", 2, 103).change(func(r *Received) { r.Attempt = 2 }),
		delivery("h", 5, 104).change(func(r *Received) { r.Receipt.Seq = 70 }),
	)
	h.Published[4].At = at(102) // it was acknowledged after the crash
	// One copy of 6 died, and between the retries of the other copy of 7 the first was acknowledged.
	h.Published[5].At, h.Published[6].At = at(103), at(103)
	h.Groups[1].Dead = 1
	h.first("h", 6).Settled = Back
	h.Received = append(h.Received,
		delivery("h", 6, 110).change(func(r *Received) { r.Settled = Dead }),
		delivery("h", 6, 200).change(func(r *Received) { r.Receipt.Seq = 71 }),
		delivery("h", 7, 20).change(func(r *Received) { r.Receipt.Seq = 72; r.Settled = Back }),
		delivery("h", 7, 200).change(func(r *Received) { r.Receipt.Seq = 72; r.Attempt = 2 }),
	)
	r := Check(h, time.Second)
	if !r.OK() || r.Counts[0].Duplicates != 1 || r.Counts[1].Duplicates != 4 {
		t.Errorf("duplicates across a crash:\n%s", r)
	}
	h.Received = append(h.Received, delivery("h", 2, 105).change(func(r *Received) { r.Attempt = 2 }))
	if got := Check(h, time.Second).Of(Miscounted); len(got) != 1 {
		t.Errorf("attempt 2 was handed out twice across a crash: %v", got)
	}
	h.Crashes = append(h.Crashes, Crash{What: "output host cut off", From: at(103), To: at(105), Split: true})
	if got := Check(h, time.Second).Of(Miscounted); len(got) != 0 {
		t.Errorf("two owners count apart: %v", got)
	}
}

// TestCheck_SecondCopyIsSeenFirstWithASecondAttempt: a message was stored twice, as another group shows, and nobody
// lived to tell of the first attempt of the second copy.
func TestCheck_SecondCopyIsSeenFirstWithASecondAttempt(t *testing.T) {
	h := good()
	h.Published[6].At = at(103) // it was acknowledged after the crash
	second := func(r *Received) { r.Receipt.Seq = 72 }
	h.first("h", 7).Settled = Back
	h.Received = append(h.Received,
		delivery("g", 7, 110).change(second),
		delivery("h", 7, 104).change(func(r *Received) { r.Settled, r.Attempt = Dropped, 2 }),
		delivery("h", 7, 105).change(second).change(func(r *Received) { r.Attempt = 2 }),
		delivery("h", 7, 106).change(func(r *Received) { r.Attempt = 3 }),
	)
	if r := Check(h, time.Second); !r.OK() {
		t.Errorf("two copies that were counted apart:\n%s", r)
	}
}

// TestCheck_SecondCopyOfOneGroup: one group alone received the second copy, whose first attempt nobody lived to tell
// of. It is no message of the retry queue: others of its extent came with first attempts.
func TestCheck_SecondCopyOfOneGroup(t *testing.T) {
	h := good()
	h.Published[6].At = at(100.5) // it was acknowledged after the crash
	h.first("h", 7).Settled = Back
	h.Received = append(h.Received,
		delivery("h", 7, 104).change(func(r *Received) { r.Receipt.Seq, r.Attempt = 72, 2 }),
		delivery("h", 7, 106).change(func(r *Received) { r.Attempt = 2 }),
	)
	if r := Check(h, time.Second); !r.OK() {
		t.Errorf("two copies that were counted apart:\n%s", r)
	}
}

// TestCheck_Split has two hosts hand out what they both counted, and a duplicate given back after its first delivery
// was acknowledged.
func TestCheck_Split(t *testing.T) {
	h := good()
	h.Received = append(h.Received,
		delivery("h", 2, 101).change(func(r *Received) { r.Settled, r.Attempt = Back, 2 }),
		delivery("h", 2, 102).change(func(r *Received) { r.Settled, r.Attempt = Back, 2 }),
	)
	if got := Check(h, time.Second).Findings; len(got) != 1 || got[0].Kind != Miscounted {
		t.Errorf("an attempt that came twice without a split: %v", got)
	}
	h.Crashes[0].Split = true
	if r := Check(h, time.Second); !r.OK() || r.Counts[1].Recounted != 1 {
		t.Errorf("across a split:\n%s", r)
	}
	h.first("h", 2).Settled = Dropped
	if got := Check(h, time.Second).Findings; len(got) != 1 || got[0].Kind != Lost {
		t.Errorf("never acknowledged: %v", got)
	}
	h.Crashes[0].From, h.Crashes[0].To = at(104), at(105)
	h.Received = append(h.Received, delivery("h", 2, 104).change(func(r *Received) { r.Attempt = 2 }))
	if got := Check(h, time.Second).Of(Miscounted); len(got) != 2 {
		t.Errorf("attempts that were counted long before the split came again in it: %v", got)
	}
}

func TestCheck_Empty(t *testing.T) {
	if r := Check(&History{}, 0); !r.OK() {
		t.Errorf("an empty history: %s", r)
	}
	h := good()
	h.Received = nil
	h.Groups[0].Dead = 0
	if got := len(Check(h, 0).Of(Lost)); got != 14 {
		t.Errorf("%d findings when nobody received anything, want 2 groups × 7 messages", got)
	}
}

func TestReport_String(t *testing.T) {
	h := good()
	h.Received = nil
	text := Check(h, 0).String()
	for _, want := range []string{"lost: 14 in all", "/t/a g: 0 messages received, 7 acknowledged", `lost: /t/a p/1, group "g": acknowledged at`} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if text := Check(good(), 0).String(); !strings.Contains(text, "nothing is wrong") {
		t.Errorf("the report of a good history:\n%s", text)
	}
}

func TestHistory_WrittenAndRead(t *testing.T) {
	var b bytes.Buffer
	if err := good().Write(&b); err != nil {
		t.Fatal(err)
	}
	var got History
	if err := got.Read(bytes.NewReader(b.Bytes())); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(good(), &got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"cut off":       strings.TrimSpace(b.String())[:b.Len()-10],
		"empty entry":   "{}",
		"not JSON":      "published",
		"unknown field": `{"published":{"colour":1}}`,
	} {
		if err := new(History).Read(strings.NewReader(text)); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s: %v, want corrupt", name, err)
		}
	}
}

// TestCheck_Parked has a message go on elsewhere, twice, and die there.
func TestCheck_Parked(t *testing.T) {
	h := good()
	h.first("h", 2).Settled, h.first("h", 5).Settled = RetryQueued, RetryQueued
	h.Groups[1].Dead = 1
	h.Received = append(h.Received,
		delivery("h", 2, 60).change(func(r *Received) { r.Receipt, r.Attempt, r.Settled = moved(50), 2, RetryQueued }),
		delivery("h", 2, 70).change(func(r *Received) { r.Receipt, r.Attempt = moved(51), 3 }),
		delivery("h", 5, 60).change(func(r *Received) { r.Receipt, r.Attempt, r.Settled = moved(52), 2, Back }),
		delivery("h", 5, 80).change(func(r *Received) { r.Settled, r.Attempt = Dead, 2 }),
	)
	if r := Check(h, time.Second); !r.OK() || r.Counts[1].Duplicates != 0 || r.Counts[1].Retries != 3 {
		t.Errorf("parked messages:\n%s", r)
	}
}

// TestCheck_Displaced has what was nacked, or dropped, come from the retry queue, to which it was moved to make room:
// with the next attempt, and with no other.
func TestCheck_Displaced(t *testing.T) {
	for _, how := range []Settled{Back, Dropped} {
		for attempt, ok := range map[int]bool{1: false, 2: true, 3: false} {
			h := good()
			h.first("h", 2).Settled = how
			h.Received = append(h.Received, delivery("h", 2, 60).change(func(r *Received) { r.Receipt, r.Attempt = moved(50), attempt }))
			if r := Check(h, time.Second); r.OK() != ok || ok && (r.Counts[1].Duplicates != 0 || r.Counts[1].Retries != 1) {
				t.Errorf("%s, and elsewhere with attempt %d:\n%s", how, attempt, r)
			}
		}
	}
}
