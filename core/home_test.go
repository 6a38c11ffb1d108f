package core_test

import (
	"encoding/json"
	"testing"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

func TestHome_Parse(t *testing.T) {
	id := func(b byte) core.ID { return core.ID{15: b} }
	queue, group := core.QueueID{ID: id(1)}, core.GroupID{ID: id(2)}
	for text, want := range map[string]core.Home{
		"": {}, "own": {}, "purged": {Kind: core.HomePurged},
		"merged(" + queue.String() + "/" + group.String() + ")": core.MergedInto(queue, group),
		"staging(" + id(3).String() + ")":                       {Kind: core.HomeStaging, Operation: id(3)},
	} {
		if got, err := core.ParseHome(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"mine", "own()", "purged()", "merged", "merged()", "merged(" + group.String() + ")", "merged(" + queue.String() + "/" + group.String(),
		"merged(" + queue.String() + "/x)", "staging()", "staging(x)", "staging(" + id(3).String(), "staging(" + id(3).String() + "))",
	} {
		if got, err := core.ParseHome(text); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

// TestHome_RoundTrip writes homes as JSON and reads them again.
func TestHome_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Custom(func(t *rapid.T) core.ID {
			return core.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		})
		h := core.Home{Kind: core.HomeKind(rapid.IntRange(0, 3).Draw(t, "kind"))}
		switch h.Kind {
		case core.HomeMerged:
			h = core.MergedInto(core.QueueID{ID: id.Draw(t, "queue")}, core.GroupID{ID: id.Draw(t, "group")})
		case core.HomeStaging:
			h.Operation = id.Draw(t, "operation")
		}
		type row struct{ Home core.Home }
		b, err := json.Marshal(row{h})
		if err != nil {
			t.Fatal(err)
		}
		var got row
		if err := json.Unmarshal(b, &got); err != nil || got.Home != h {
			t.Fatalf("%s: got %v, %v", b, got.Home, err)
		}
	})
}

func TestHome_Readers(t *testing.T) {
	own, other := core.QueueID{ID: core.ID{1}}, core.QueueID{ID: core.ID{2}}
	mine, its := core.GroupID{ID: core.ID{3}}, core.GroupID{ID: core.ID{4}}
	for _, c := range []struct {
		home   core.Home
		reader core.QueueID
		ok     bool
		by     [3]bool // mine, its, any of its own queue
	}{
		{core.Home{}, own, true, [3]bool{true, true, true}},
		{core.MergedInto(other, mine), other, true, [3]bool{true, false, false}},
		{core.Home{Kind: core.HomePurged}, core.QueueID{}, false, [3]bool{}},
		{core.Home{Kind: core.HomeStaging, Operation: core.ID{5}}, core.QueueID{}, false, [3]bool{}},
	} {
		if got, ok := c.home.Reader(own); got != c.reader || ok != c.ok {
			t.Errorf("%s: the reader is %s, %v", c.home, got, ok)
		}
		if got := [3]bool{c.home.ReadBy(mine), c.home.ReadBy(its), c.home.ReadBy(core.GroupID{})}; got != c.by {
			t.Errorf("%s: read by %v, want %v", c.home, got, c.by)
		}
	}
}
