package wire

import (
	"testing"

	"github.com/columbamq/columba/core"
)

// TestCheckPublished_PastIsOfHosts refuses from publishers what a host says of a message that it dead-letters or parks.
func TestCheckPublished_PastIsOfHosts(t *testing.T) {
	plain := Record{ID: core.MessageID{ID: core.ID{15: 1}}, Payload: []byte("a"), Key: []byte("k"), Metadata: []byte("m"), ExpireAt: 7, DeliverAt: 5}
	for name, edit := range map[string]func(*Record){
		"attempts":      func(r *Record) { r.Attempts = 1 },
		"polls":         func(r *Record) { r.Polls = 1 },
		"first enqueue": func(r *Record) { r.FirstEnqueue = 1 },
		"origin":        func(r *Record) { r.Origin = core.Receipt{Extent: core.ExtentID{ID: core.ID{15: 2}}, Seq: 1} },
		"reason code":   func(r *Record) { r.ReasonCode = []byte("nack") },
		"reason":        func(r *Record) { r.Reason = []byte("no") },
		"last consumer": func(r *Record) { r.LastConsumer = []byte("worker") },
		"past":          func(r *Record) { r.Extra = WithHistory(nil, History{NotCounted: 3, Unsure: 3}) },
		"life":          func(r *Record) { r.Extra = AppendLife(nil, Life{Attempts: 5, ReasonCode: []byte("nack")}) },
		"":              func(r *Record) { r.Extra = []byte{9, 0, 1, 0, 'x'} }, // of a type that is not known
	} {
		r := plain
		edit(&r)
		b, err := AppendRecord(nil, &plain)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = AppendRecord(b, &r); err != nil {
			t.Fatal(err)
		}
		if n, timed, err := CheckPublished(b, MaxPayload, true); n != 2 || !timed || err != nil {
			t.Errorf("%q of a host: %d, %v, %v", name, n, timed, err)
		}
		want := core.CodeBadArgument
		if name == "" {
			want = ""
		}
		if _, _, err := CheckPublished(b, MaxPayload, false); core.CodeOf(err) != want {
			t.Errorf("%q of a publisher: %v, want %q", name, err, want)
		}
	}
}

// TestPast_WithoutUnsure is written as builds wrote it that knew no unsure attempts.
func TestPast_WithoutUnsure(t *testing.T) {
	for _, p := range []History{{Settled: 1, NotCounted: 2, Epoch: 3}, {Settled: 1, NotCounted: 2, Epoch: 3, Unsure: 2}} {
		extra := WithHistory(nil, p)
		if got := ReadHistory(extra); got != p {
			t.Errorf("got %+v, want %+v", got, p)
		}
		n := 0
		for b := range eachExtra(extra, extraHistory) {
			n = len(b)
		}
		if (n == historyLen) != (p.Unsure == 0) {
			t.Errorf("%+v is written in %d bytes", p, n)
		}
	}
}

// TestCheckPublished_LeavesRoomForHosts: only a host may publish a record with as many attributes as one may have.
func TestCheckPublished_LeavesRoomForHosts(t *testing.T) {
	for _, c := range []struct {
		attributes    int
		anyone, hosts bool
	}{{MaxPublished, true, true}, {MaxPublished + 1, false, true}, {MaxAttributes, false, true}, {MaxAttributes + 1, false, false}} {
		r := &Record{Metadata: make([]byte, c.attributes-2)}
		b, err := AppendRecord(nil, r)
		if (err == nil) != c.hosts {
			t.Errorf("%d bytes of attributes are encoded: %v", c.attributes, err)
		}
		if _, err := AppendPublished(nil, r); (err == nil) != c.anyone || err != nil && core.CodeOf(err) != core.CodeTooLarge {
			t.Errorf("%d bytes of attributes are encoded for a publish: %v", c.attributes, err)
		}
		for _, host := range []bool{false, true} {
			if err != nil {
				break
			}
			if _, _, err := CheckPublished(b, MaxPayload, host); (err == nil) != (host || c.anyone) || err != nil && core.CodeOf(err) != core.CodeTooLarge {
				t.Errorf("%d bytes of attributes, host %v: %v", c.attributes, host, err)
			}
		}
	}
}
