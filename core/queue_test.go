package core_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
)

func TestQueueSpec_Defaults(t *testing.T) {
	want := core.QueueSpec{
		Consistency: core.AP, Durability: core.DurabilityFsync, Replicas: 3, MinReplicas: 2,
		ConsumedRetention: 24 * time.Hour, UnconsumedRetention: 72 * time.Hour, MaxMessage: 1 << 20, Status: core.StatusEnabled,
	}
	got := core.QueueSpec{}.WithDefaults(3, 2)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	if one := (core.QueueSpec{Replicas: 1}).WithDefaults(3, 2); one.MinReplicas != 1 || one.Validate() != nil {
		t.Errorf("one replica wanted: min replicas %d, %v", one.MinReplicas, one.Validate())
	}
	mine := core.QueueSpec{Consistency: core.CP, Durability: core.DurabilityWritten, Replicas: 5, MinReplicas: 5, ConsumedRetention: 1, UnconsumedRetention: 2, MaxMessage: 9, Status: core.StatusSendOnly}
	if got := mine.WithDefaults(3, 2); got != mine {
		t.Errorf("defaults replace what is set: %s", cmp.Diff(mine, got))
	}
}

func TestQueueSpec_Validate(t *testing.T) {
	for name, change := range map[string]func(*core.QueueSpec){
		"consistency":     func(q *core.QueueSpec) { q.Consistency = "x" },
		"durability":      func(q *core.QueueSpec) { q.Durability = "x" },
		"no replicas":     func(q *core.QueueSpec) { q.Replicas = -1 },
		"many replicas":   func(q *core.QueueSpec) { q.Replicas = core.MaxReplicas + 1 },
		"no minimum":      func(q *core.QueueSpec) { q.MinReplicas = -1 },
		"minimum above":   func(q *core.QueueSpec) { q.MinReplicas = q.Replicas + 1 },
		"consumed":        func(q *core.QueueSpec) { q.ConsumedRetention = -1 },
		"consumed long":   func(q *core.QueueSpec) { q.ConsumedRetention = core.MaxRetention + 1 },
		"unconsumed":      func(q *core.QueueSpec) { q.UnconsumedRetention = -1 },
		"unconsumed long": func(q *core.QueueSpec) { q.UnconsumedRetention = core.MaxRetention + 1 },
		"no message":      func(q *core.QueueSpec) { q.MaxMessage = -1 },
		"large message":   func(q *core.QueueSpec) { q.MaxMessage = core.MaxMaxMessage + 1 },
		"status":          func(q *core.QueueSpec) { q.Status = "gone" },
		"deleted":         func(q *core.QueueSpec) { q.Status = core.StatusDeleted },
	} {
		q := core.QueueSpec{}.WithDefaults(3, 2)
		change(&q)
		if err := q.Validate(); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%s: got %v, want %s", name, err, core.CodeBadArgument)
		}
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		status           core.Status
		publish, consume bool
	}{
		{core.StatusEnabled, true, true},
		{core.StatusSendOnly, true, false},
		{core.StatusReceiveOnly, false, true},
		{core.StatusDisabled, false, false},
		{core.StatusDeleted, false, false},
	} {
		if c.status.CanPublish() != c.publish || c.status.CanConsume() != c.consume {
			t.Errorf("%s: publish %v, consume %v", c.status, c.status.CanPublish(), c.status.CanConsume())
		}
	}
}

func TestQueueSpec_ReplicasAskedForAreNotFewerThanTwo(t *testing.T) {
	for asked, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 2} {
		if got := (core.QueueSpec{Replicas: asked}).WithDefaults(1, 1).MinReplicas; got != want {
			t.Errorf("replicas %d: min-replicas %d, want %d", asked, got, want)
		}
	}
	if got := (core.QueueSpec{Replicas: 3, MinReplicas: 1}).WithDefaults(1, 1).MinReplicas; got != 1 {
		t.Errorf("min-replicas %d, want the 1 that was asked for", got)
	}
}
