package core_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestNewID(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_123)
	seen := map[core.ID]bool{}
	for range 1000 {
		id := core.NewID(now)
		if !id.Time().Equal(now) || id[6]>>4 != 7 || id[8]>>6 != 2 || id.IsZero() || seen[id] {
			t.Fatalf("%s: made for %s, time is %s, seen %v", id, now, id.Time(), seen[id])
		}
		seen[id] = true
	}
	if early, late := core.NewID(now), core.NewID(now.Add(time.Millisecond)); early.String() >= late.String() {
		t.Errorf("%s is not before %s", early, late)
	}
}

func TestID_RoundTrip(t *testing.T) {
	id := core.NewID(time.Unix(1, 0))
	if got, err := core.ParseID(id.String()); got != id || err != nil {
		t.Errorf("text: got %s, %v, want %s", got, err, id)
	}
	if got, err := core.IDFromBytes(id[:]); got != id || err != nil {
		t.Errorf("bytes: got %s, %v, want %s", got, err, id)
	}
	in := core.ExtentID{ID: id}
	b, err := json.Marshal(in)
	if err != nil || string(b) != `"`+id.String()+`"` {
		t.Fatalf("got %s, %v", b, err)
	}
	var out core.ExtentID
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("json: got %s, %v", out, err)
	}
	if got := (core.Receipt{Extent: in, Seq: 7}).String(); got != id.String()+":7" {
		t.Errorf("receipt: got %q", got)
	}
}

func TestParseID_Refuses(t *testing.T) {
	good := core.NewID(time.Unix(1, 0)).String()
	for _, bad := range []string{"", good[1:], good + "0", "g" + good[1:], good[:8] + "0" + good[9:], "{" + good[1:35] + "}"} {
		if _, err := core.ParseID(bad); core.CodeOf(err) != core.CodeBadID {
			t.Errorf("%q: got %v", bad, err)
		}
		var id core.ID
		if err := id.UnmarshalText([]byte(bad)); core.CodeOf(err) != core.CodeBadID || !id.IsZero() {
			t.Errorf("%q: unmarshalled to %s, %v", bad, id, err)
		}
	}
	if _, err := core.IDFromBytes(make([]byte, 15)); core.CodeOf(err) != core.CodeBadID {
		t.Errorf("15 bytes: got %v", err)
	}
}

func TestParseReceipt(t *testing.T) {
	want := core.Receipt{Extent: core.ExtentID{ID: core.NewID(time.Unix(1, 0))}, Seq: 17}
	if got, err := core.ParseReceipt(want.String()); err != nil || got != want {
		t.Errorf("%s is read as %s, %v", want, got, err)
	}
	id := want.Extent.String()
	for _, bad := range []string{"", id, id + ":", ":17", id + ":-1", id + ":x", id[1:] + ":17", id + ":17:1"} {
		if _, err := core.ParseReceipt(bad); core.CodeOf(err) != core.CodeBadID {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("0188e5f0-0000-7000-8000-000000000000")
	f.Add("0188E5F0-0000-7000-8000-00000000000g")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := core.ParseID(s)
		if err != nil {
			return
		}
		if again, err := core.ParseID(id.String()); err != nil || again != id {
			t.Fatalf("%q parses to %s, which parses to %s, %v", s, id, again, err)
		}
	})
}
