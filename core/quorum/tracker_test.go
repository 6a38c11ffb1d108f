package quorum_test

import (
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quorum"
	"pgregory.net/rapid"
)

func TestTracker_CommittedIsTheMinimum(t *testing.T) {
	tr := quorum.New(3)
	steps := []struct {
		replica   int
		durable   core.Seq
		committed core.Seq
		advanced  bool
	}{
		{0, 5, 0, false},
		{1, 3, 0, false},
		{2, 4, 3, true},
		{2, 9, 3, false},
		{1, 2, 3, false}, // late and lower: ignored
		{1, 7, 5, true},
		{1, 7, 5, false},
	}
	for i, s := range steps {
		committed, advanced := tr.Ack(s.replica, s.durable)
		if committed != s.committed || advanced != s.advanced {
			t.Fatalf("step %d: got %d, %v, want %d, %v", i, committed, advanced, s.committed, s.advanced)
		}
	}
	if r, d := tr.Slowest(); r != 0 || d != 5 {
		t.Errorf("slowest: got %d at %d, want 0 at 5", r, d)
	}
	if got := tr.Durable(1); got != 7 {
		t.Errorf("durable of 1: got %d, want 7", got)
	}
}

func TestTracker_OneReplica(t *testing.T) {
	tr := quorum.New(1)
	if c, adv := tr.Ack(0, 12); c != 12 || !adv {
		t.Fatalf("got %d, %v, want 12, true", c, adv)
	}
}

func TestTracker_NoReplicas(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a tracker without replicas would commit everything; New must refuse")
		}
	}()
	quorum.New(0)
}

func TestTracker_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, core.MaxReplicas).Draw(t, "n")
		tr := quorum.New(n)
		model := make([]core.Seq, n)
		var before core.Seq
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			r := rapid.IntRange(0, n-1).Draw(t, "replica")
			d := core.Seq(rapid.IntRange(0, 20).Draw(t, "durable"))
			model[r] = max(model[r], d)
			committed, advanced := tr.Ack(r, d)
			want := slices.Min(model)
			if committed != want || tr.Committed() != want || advanced != (want > before) {
				t.Fatalf("%v: got %d, %v, want %d, %v", model, committed, advanced, want, want > before)
			}
			if slow, at := tr.Slowest(); model[slow] != want || at != want {
				t.Fatalf("%v: slowest is %d at %d", model, slow, at)
			}
			before = want
		}
	})
}

func BenchmarkAck(b *testing.B) {
	tr := quorum.New(3)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tr.Ack(i%3, core.Seq(i))
	}
}
