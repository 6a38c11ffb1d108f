package frontend

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// TestUpdate_NamedFieldsGoBackToZero sets what an update without names leaves as it is.
func TestUpdate_NamedFieldsGoBackToZero(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	hour := durationpb.New(time.Hour)
	g := must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 3, Breaker: core.BreakerOff}}))(t)
	if g.Spec.MaxDeliveries != 3 || g.Spec.Breaker != core.BreakerOff {
		t.Fatalf("set fields: %v", g.Spec)
	}
	g = must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 5, Breaker: 60}, Fields: []string{"breaker"}}))(t)
	if g.Spec.MaxDeliveries != 3 || g.Spec.Breaker != 60 {
		t.Errorf("named fields: %v; want breaker alone changed", g.Spec)
	}
	q := must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", ConsumedRetention: hour}}))(t)
	if q.Spec.ConsumedRetention.AsDuration() != time.Hour {
		t.Fatalf("retention %v", q.Spec.ConsumedRetention)
	}
	q = must(call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}, Fields: []string{"consumed_retention"}}))(t)
	if q.Spec.ConsumedRetention.AsDuration() != 0 || q.Spec.UnconsumedRetention.AsDuration() == 0 {
		t.Errorf("retentions %v, %v; want 0 and as it was", q.Spec.ConsumedRetention, q.Spec.UnconsumedRetention)
	}
	_, err := call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}, Fields: []string{"path"}})
	wantCode(t, "a field that is fixed", err, core.CodeBadArgument)
	_, err = call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}, Fields: []string{"max_message"}})
	wantCode(t, "zero where it is not allowed", err, core.CodeBadArgument)
	_, err = call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g"}, Fields: []string{"start"}})
	wantCode(t, "a group's start", err, core.CodeBadArgument)
}

// TestCreateQueue_DefaultsAreTheClusters has a second frontend with another configuration.
func TestCreateQueue_DefaultsAreTheClusters(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { store.Close() })
	first := newHarness(t, keepOpen{store}, func(c *Config) { c.Replicas, c.MinReplicas = 3, 1 })
	second := newHarness(t, keepOpen{store})
	for i, c := range []*harness{first, second} {
		q := c.createQueue([]string{"/t/a", "/t/b"}[i])
		if q.Spec.Replicas != 3 || q.Spec.MinReplicas != 1 {
			t.Errorf("frontend %d: %d copies, at least %d; want what the cluster began with", i+1, q.Spec.Replicas, q.Spec.MinReplicas)
		}
	}
	own := must(call(t, second.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/c", Replicas: 1}}))(t)
	if own.Spec.Replicas != 1 || own.Spec.MinReplicas != 1 {
		t.Errorf("own numbers: %v", own.Spec)
	}
	_, err := call(t, second.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/d", Replicas: 3, MinReplicas: 2}})
	wantCode(t, "more than there are stores", err, core.CodeIncomplete)
}

// keepOpen leaves a store open that several frontends use.
type keepOpen struct{ metadata.Store }

func (keepOpen) Close() error { return nil }

// TestCreateQueue_RetentionOfZero: 0 is a retention when a queue is created, as it is in an update; one that is left
// out is the default.
func TestCreateQueue_RetentionOfZero(t *testing.T) {
	c := newHarness(t, nil)
	q := must(call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/zero", ConsumedRetention: durationpb.New(0)}}))(t)
	if q.Spec.ConsumedRetention.AsDuration() != 0 || q.Spec.UnconsumedRetention.AsDuration() != 72*time.Hour {
		t.Errorf("retentions %v, %v; want 0 and the default", q.Spec.ConsumedRetention, q.Spec.UnconsumedRetention)
	}
}

// TestFields_Check refuses names that an update cannot change, and names that stand there twice: what an update names
// is written to the audit, so its length must have a bound. No answer is longer than a line, however long a name is.
func TestFields_Check(t *testing.T) {
	for name, test := range map[string]struct {
		fields fields
		ok     bool
	}{
		"none":    {nil, true},
		"each":    {fields{"status", "replicas"}, true},
		"unknown": {fields{"status", "path"}, false},
		"empty":   {fields{""}, false},
		"long":    {fields{strings.Repeat("\x00", 1<<20)}, false},
		"twice":   {fields{"status", "status"}, false},
		"often":   {slices.Repeat(fields{"replicas"}, 1_000_000), false},
	} {
		switch err := test.fields.check("status", "replicas"); {
		case test.ok != (err == nil):
			t.Errorf("%s: %v", name, err)
		case err != nil && (core.CodeOf(err) != core.CodeBadArgument || len(err.Error()) > 500):
			t.Errorf("%s: an error of code %s and %d bytes", name, core.CodeOf(err), len(err.Error()))
		}
	}
}
