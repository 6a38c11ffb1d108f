package metadata_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// newerCounter is a counter of a newer version.
type newerCounter struct {
	New  string         `json:"a_new,omitempty"`
	N    int            `json:"n"`
	Tags []string       `json:"tags,omitempty"`
	More map[string]int `json:"more,omitempty"`
	Spec newerSpec      `json:"spec,omitzero"`
}

type newerSpec struct {
	Known int `json:"known,omitempty"`
	New   int `json:"new,omitempty"`
}

// TestChange_KeepsWhatItDoesNotKnow: hosts of two versions change a row in turn. A change by the older one leaves the
// members that only the newer one knows as they are.
func TestChange_KeepsWhatItDoesNotKnow(t *testing.T) {
	s := memory.New()
	first := newerCounter{New: `"}`, N: 1, Tags: []string{"x"}, More: map[string]int{"m": 1}, Spec: newerSpec{1, 2}}
	if err := metadata.Create(t.Context(), s, counters, counterA, first); err != nil {
		t.Fatal(err)
	}
	want := func(when string, want newerCounter) {
		t.Helper()
		got, _, err := metadata.Read[newerCounter](t.Context(), s, counters, counterA, metadata.Serial)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	older := func(change func(*counter)) {
		t.Helper()
		if _, err := metadata.Change(t.Context(), s, counters, counterA, func(c *counter) error {
			change(c)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	older(func(c *counter) { c.N, c.Tags = 2, nil })
	want("after a change", newerCounter{New: `"}`, N: 2, More: map[string]int{"m": 1}, Spec: newerSpec{1, 2}})
	version := func() metadata.Version {
		row, err := s.Get(t.Context(), counters, counterA, metadata.Serial)
		if err != nil {
			t.Fatal(err)
		}
		return row.Version
	}
	before := version()
	older(func(*counter) {})
	if got := version(); got != before {
		t.Errorf("a change of nothing writes the row: version %d after %d", got, before)
	}
	if _, err := metadata.Change(t.Context(), s, counters, counterA, func(c *newerCounter) error {
		c.New, c.More, c.N = "", map[string]int{"m": 2}, 3
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	older(func(c *counter) { c.Tags = []string{"y"} })
	want("after changes by both", newerCounter{N: 3, Tags: []string{"y"}, More: map[string]int{"m": 2}, Spec: newerSpec{1, 2}})
	older(func(c *counter) { c.Spec.Known = 0 })
	want("after a change within", newerCounter{N: 3, Tags: []string{"y"}, More: map[string]int{"m": 2}})
}

// TestChange_OfARowThatIsNull: null is read as an empty record, and is changed as one.
func TestChange_OfARowThatIsNull(t *testing.T) {
	s := memory.New()
	if err := s.Insert(t.Context(), counters, counterA, []byte("null")); err != nil {
		t.Fatal(err)
	}
	if _, err := metadata.Change(t.Context(), s, counters, counterA, func(c *counter) error {
		c.N++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if c, _, err := metadata.Read[counter](t.Context(), s, counters, counterA, metadata.Serial); err != nil || c.N != 1 {
		t.Errorf("read %+v, %v", c, err)
	}
}
