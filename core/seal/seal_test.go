package seal_test

import (
	"errors"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var hosts = []core.HostID{"a", "b", "c"}

func disk(h core.HostID) core.DiskID { return core.DiskID{ID: core.ID{15: h[0]}} }

// answer is a fence answer of last records, whose checksum depends on their number only.
func answer(h core.HostID, health core.Health, last core.Seq) core.FenceAnswer {
	return core.FenceAnswer{
		Identity: core.StoreIdentity{Store: h, Disk: disk(h)},
		Health:   health, Last: last, Checksum: 100 * uint32(last),
	}
}

func ok(h core.HostID, last core.Seq) core.FenceAnswer   { return answer(h, core.HealthOK, last) }
func weak(h core.HostID, last core.Seq) core.FenceAnswer { return answer(h, core.HealthWeak, last) }
func suspect(h core.HostID, last core.Seq) core.FenceAnswer {
	return answer(h, core.HealthSuspect, last)
}

func absent(h core.HostID) core.FenceAnswer {
	a := answer(h, core.HealthOK, 0)
	a.Absent = true
	return a
}

// replaced is the answer of an empty disk under the name.
func replaced(h core.HostID) core.FenceAnswer {
	a := suspect(h, 0)
	a.Identity.Disk = disk("x")
	return a
}

func sealed(a core.FenceAnswer, l core.Seq) core.FenceAnswer {
	a.Sealed, a.L = true, l
	return a
}

func knows(a core.FenceAnswer, committed core.Seq) core.FenceAnswer {
	a.Committed = committed
	return a
}

// from is an input of n replicas that know their disks.
func from(n int, floor core.Seq, answers ...core.FenceAnswer) seal.Input {
	in := seal.Input{
		Replicas: hosts[:n], Floor: floor,
		Answers: map[core.HostID]core.FenceAnswer{},
		Missing: map[core.HostID]error{"a": errors.New("connection refused")},
		Disks:   map[core.HostID]core.DiskID{},
	}
	for _, h := range hosts {
		in.Disks[h] = disk(h)
	}
	for _, a := range answers {
		in.Answers[a.Identity.Store] = a
	}
	return in
}

func gone(in seal.Input, hosts ...core.HostID) seal.Input {
	in.Gone = hosts
	return in
}

func force(in seal.Input) seal.Input {
	in.Force = true
	return in
}

type ids = []core.HostID

func decided(l core.Seq, counting, holders ids, copies ...seal.Copy) seal.Decision {
	return seal.Decision{Verdict: seal.Decided, L: l, Checksum: 100 * uint32(l), HasSum: true, Counting: counting, Holders: holders, Copies: copies}
}

func with(d seal.Decision, change func(*seal.Decision)) seal.Decision {
	change(&d)
	return d
}

func suspects(h ...core.HostID) func(*seal.Decision) { return func(d *seal.Decision) { d.Suspect = h } }
func unreached(h ...core.HostID) func(*seal.Decision) {
	return func(d *seal.Decision) { d.NotReached = h }
}

// damagedAlone is the end of an extent whose only replica cannot be read.
func damagedAlone(h core.HostID) func(*seal.Decision) {
	return func(d *seal.Decision) { d.Suspect, d.Alarm = ids{h}, seal.AlarmSuspect }
}

func forced(d *seal.Decision) { d.Forced, d.Alarm = true, seal.AlarmForced }

func TestDecide(t *testing.T) {
	otherDisk := ok("b", 9)
	otherDisk.Identity.Disk = disk("x")
	otherStore := ok("b", 9)
	otherStore.Identity.Store = "z"
	byWrongStore := from(2, 0, ok("a", 3))
	byWrongStore.Answers["b"] = otherStore
	onlyByWrongStore := from(2, 0, otherStore)
	onlyByWrongStore.Replicas, onlyByWrongStore.Answers = ids{"b"}, map[core.HostID]core.FenceAnswer{"b": otherStore}
	differs := ok("b", 3)
	differs.Checksum++

	cases := []struct {
		name string
		in   seal.Input
		want seal.Decision
	}{
		{"one replica, ok", from(1, 4, ok("a", 5)), decided(5, ids{"a"}, ids{"a"})},
		{"one replica, weak: all answered", from(1, 0, weak("a", 5)), decided(5, ids{"a"}, ids{"a"})},
		{"one replica, nothing ever stored", from(1, 0, absent("a")), decided(0, ids{"a"}, ids{"a"})},
		{"one replica, missing", from(1, 0), with(seal.Decision{}, unreached("a"))},
		{"one replica, damaged", from(1, 0, suspect("a", 5)), with(decided(5, nil, nil), damagedAlone("a"))},
		{"one replica, damaged, shorter than the floor", from(1, 7, suspect("a", 5)), with(decided(7, nil, nil), func(d *seal.Decision) { damagedAlone("a")(d); d.Checksum = 0 })},
		{"one replica, which lost what was committed", from(1, 0, knows(weak("a", 3), 4)), with(decided(4, nil, nil), func(d *seal.Decision) { damagedAlone("a")(d); d.Checksum = 0 })},
		{"one replica, damaged, with an end", from(1, 0, sealed(suspect("a", 5), 5)), with(decided(5, nil, nil), func(d *seal.Decision) { damagedAlone("a")(d); d.Adopted = true })},
		{"all ok, equal", from(3, 5, ok("a", 5), ok("b", 5), ok("c", 5)), decided(5, ids{"a", "b", "c"}, ids{"a", "b", "c"})},
		{"the longest wins", from(3, 3, ok("a", 3), ok("b", 5), ok("c", 4)),
			decided(5, ids{"a", "b", "c"}, ids{"b"}, seal.Copy{From: "b", To: "a", First: 4, Last: 5}, seal.Copy{From: "b", To: "c", First: 5, Last: 5})},
		{"one ok suffices", from(3, 2, ok("c", 2)), with(decided(2, ids{"c"}, ids{"c"}), unreached("a", "b"))},
		{"(a) weak beside an ok one, longer", from(3, 2, weak("a", 4), ok("b", 2)),
			with(decided(4, ids{"a", "b"}, ids{"a"}, seal.Copy{From: "a", To: "b", First: 3, Last: 4}), unreached("c"))},
		{"(b) all weak, all answered", from(3, 0, weak("a", 1), weak("b", 2), weak("c", 2)),
			decided(2, ids{"a", "b", "c"}, ids{"b", "c"}, seal.Copy{From: "b", To: "a", First: 2, Last: 2})},
		{"(b) a suspect answer is an answer", from(2, 0, weak("a", 3), suspect("b", 9)), with(decided(3, ids{"a"}, ids{"a"}), suspects("b"))},
		{"(c) weak at the floor", from(3, 3, weak("a", 3)), with(decided(3, ids{"a"}, ids{"a"}), unreached("b", "c"))},
		{"(c) weak below the floor does not count with it", from(3, 3, weak("a", 3), weak("b", 2)), with(decided(3, ids{"a"}, ids{"a"}), unreached("c"))},
		{"weak below the floor alone", from(3, 3, weak("a", 2)), with(seal.Decision{}, unreached("b", "c"))},
		{"weak without a floor alone", from(3, 0, weak("a", 2), weak("b", 2)), with(seal.Decision{}, unreached("c"))},
		{"suspect does not support weak", from(3, 0, suspect("a", 2), weak("b", 2)), with(with(seal.Decision{}, suspects("a")), unreached("c"))},
		{"suspect carries no length", from(2, 0, suspect("a", 9), ok("b", 2)), with(decided(2, ids{"b"}, ids{"b"}), suspects("a"))},
		{"absent is weak, whatever it says", from(3, 0, absent("a"), absent("b")), with(seal.Decision{}, unreached("c"))},
		{"absent beside an ok one is copied to", from(2, 1, absent("a"), ok("b", 2)),
			decided(2, ids{"a", "b"}, ids{"b"}, seal.Copy{From: "b", To: "a", First: 1, Last: 2})},
		{"another disk under the name is suspect", from(2, 0, ok("a", 3), otherDisk), with(decided(3, ids{"a"}, ids{"a"}), suspects("b"))},
		{"another store under the name is suspect", byWrongStore, with(decided(3, ids{"a"}, ids{"a"}), suspects("b"))},
		{"a lying disk knows more than it has", from(2, 0, knows(ok("a", 3), 4), ok("b", 4)), with(decided(4, ids{"b"}, ids{"b"}), suspects("a"))},
		{"unknown health is suspect", from(2, 0, answer("a", "fine", 3), suspect("b", 3)), with(seal.Decision{Alarm: seal.AlarmSuspect}, suspects("a", "b"))},
		{"two replicas, both damaged", from(2, 0, suspect("a", 3), suspect("b", 5)), with(seal.Decision{Alarm: seal.AlarmSuspect}, suspects("a", "b"))},
		{"weak ones, and a store that is gone", gone(from(3, 0, weak("a", 2), weak("b", 1)), "c"),
			with(decided(2, ids{"a", "b"}, ids{"a"}, seal.Copy{From: "a", To: "b", First: 2, Last: 2}), suspects("c"))},
		{"a store that is gone does not stand for another", gone(from(3, 0, weak("a", 2)), "c"), with(with(seal.Decision{}, suspects("c")), unreached("b"))},
		{"a store that is gone, and below what was committed", gone(from(2, 4, weak("b", 3)), "a"), with(seal.Decision{Alarm: seal.AlarmBelowFloor}, suspects("a"))},
		{"a store that is said to be gone answers", gone(from(2, 0, weak("a", 2), ok("b", 3)), "b"),
			decided(3, ids{"a", "b"}, ids{"b"}, seal.Copy{From: "b", To: "a", First: 3, Last: 3})},
		{"below the floor", from(2, 4, ok("a", 3), ok("b", 2)), seal.Decision{Alarm: seal.AlarmBelowFloor}},
		{"below what a suspect one knows as committed", from(2, 0, knows(suspect("a", 0), 4), ok("b", 3)), with(seal.Decision{Alarm: seal.AlarmBelowFloor}, suspects("a"))},
		{"same length, different bytes", from(2, 0, ok("a", 3), differs), seal.Decision{Alarm: seal.AlarmDiverged}},
		{"a persisted end is adopted", from(3, 2, sealed(ok("a", 3), 3), ok("b", 5), weak("c", 2)),
			with(decided(3, ids{"a", "b", "c"}, ids{"a", "b"}, seal.Copy{From: "a", To: "c", First: 3, Last: 3}), func(d *seal.Decision) { d.Adopted, d.Truncate = true, ids{"b"} })},
		{"a persisted end of a weak answer is adopted", from(3, 0, sealed(weak("b", 3), 3)),
			with(with(decided(3, ids{"b"}, ids{"b"}), unreached("a", "c")), func(d *seal.Decision) { d.Adopted = true })},
		{"a persisted end above everybody reached", from(3, 0, sealed(weak("b", 3), 5), ok("c", 4)), with(seal.Decision{}, unreached("a"))},
		{"a persisted end below the floor", from(2, 4, sealed(ok("a", 3), 3), ok("b", 4)), seal.Decision{Alarm: seal.AlarmBelowFloor}},
		{"two persisted ends", from(2, 0, sealed(ok("a", 3), 3), sealed(ok("b", 4), 4)), seal.Decision{Alarm: seal.AlarmTwoEnds}},
		{"two persisted ends are not forced", force(from(2, 0, sealed(ok("a", 3), 3), sealed(ok("b", 4), 4))), seal.Decision{Alarm: seal.AlarmTwoEnds}},
		{"forced: weak alone", force(from(3, 0, weak("a", 2))),
			with(with(decided(2, ids{"a"}, ids{"a"}), unreached("b", "c")), func(d *seal.Decision) { d.Forced, d.Alarm = true, seal.AlarmForced })},
		{"forced: below the floor", force(from(2, 4, ok("a", 3), ok("b", 3))),
			with(decided(3, ids{"a", "b"}, ids{"a", "b"}), func(d *seal.Decision) { d.Forced, d.Alarm, d.Lost = true, seal.AlarmForced, 1 })},
		{"force does not flag what needs none", force(from(1, 3, ok("a", 3))), decided(3, ids{"a"}, ids{"a"})},
		{"nothing left, without a force", from(1, 4, replaced("a")), with(seal.Decision{Alarm: seal.AlarmSuspect}, suspects("a"))},
		{"forced: nothing left", force(from(2, 4, replaced("a"), replaced("b"))),
			with(with(decided(0, nil, nil), suspects("a", "b")), func(d *seal.Decision) { d.Forced, d.Alarm, d.Lost = true, seal.AlarmForced, 4 })},
		{"force ends nothing while a disk may be back", force(from(2, 4, replaced("b"))), with(with(seal.Decision{}, suspects("b")), unreached("a"))},
		{"forced: damaged bytes are all that is there", force(from(2, 2, replaced("a"), suspect("b", 3))), with(with(decided(3, nil, nil), suspects("a", "b")), forced)},
		{"forced: damaged bytes below the floor", force(from(2, 4, replaced("a"), suspect("b", 3))),
			with(with(decided(4, nil, nil), suspects("a", "b")), func(d *seal.Decision) { forced(d); d.Checksum = 0 })},
		{"forced: all are damaged, the longest decides", force(from(3, 0, suspect("a", 3), suspect("b", 5), suspect("c", 4))), with(with(decided(5, nil, nil), suspects("a", "b", "c")), forced)},
		{"force does not end by damaged bytes while a replica is away", force(from(2, 0, suspect("b", 3))), with(with(seal.Decision{}, suspects("b")), unreached("a"))},
		{"forced: all that is left is gone", force(gone(from(2, 4, replaced("a")), "b")),
			with(with(decided(0, nil, nil), suspects("a", "b")), func(d *seal.Decision) { d.Forced, d.Alarm, d.Lost = true, seal.AlarmForced, 4 })},
		{"force ends nothing by the word of another store", force(onlyByWrongStore), with(seal.Decision{Alarm: seal.AlarmSuspect}, suspects("b"))},
		{"force does not flag a damaged replica that is the only one", force(from(1, 0, suspect("a", 3))), with(decided(3, nil, nil), damagedAlone("a"))},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := seal.Decide(c.in)
			if got.Reason == "" {
				t.Error("a decision needs a reason")
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(seal.Decision{}, "Reason"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s%s", diff, got.Reason)
			}
		})
	}
}
