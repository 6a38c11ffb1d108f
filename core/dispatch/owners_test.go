package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// ownersMessages is how many messages a share has that several owners have at once.
const ownersMessages = 6

// owner is one of several owners of a share, of which none knows of the others.
type owner struct {
	g   *Group
	s   *Share
	now time.Time
}

// begin is an owner that goes on from a state, with a clock of its own.
func beginOwner(t *rapid.T, spec core.GroupSpec, kind string, st State, now time.Time) *owner {
	o := &owner{g: NewGroup(spec), now: now}
	o.g.Connected(2)
	o.g.Want(inMessages(ownersMessages), true)
	if kind == "log" {
		o.s = o.g.AddShare(extent(1), st, now)
		if n := ownersMessages + 1 - int(o.s.ReadFrom()); n > 0 {
			if err := o.s.Offer(records(o.s.ReadFrom(), n, nil), now); err != nil {
				t.Fatal(err)
			}
		}
		return o
	}
	o.s = o.g.AddTimers(extent(1), st, now)
	if kind == "retry queue" {
		o.s.Returning()
	}
	for seq := core.Seq(1); seq <= ownersMessages; seq++ {
		if o.s.Known().Done(seq) {
			continue
		}
		r := dueRecords(nil, nil, seq)
		if kind == "retry queue" {
			r.History = []History{{Origin: core.Receipt{Extent: extent(2), Seq: seq}, Attempts: 2, NotCounted: uint16(seq % 3), Unsure: uint8(seq % 2 & (seq % 3))}}
		}
		if err := o.s.OfferDue(r, now); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// live has an owner do anything, and checks that all that it could save can be read.
func (o *owner) live(t *rapid.T, events int) {
	for range events {
		seq := core.Seq(rapid.IntRange(1, ownersMessages).Draw(t, "seq"))
		attempt := uint16(1)
		if m := o.s.table.get(seq); m != nil {
			attempt = m.attempts
		}
		switch rapid.SampledFrom([]string{"take", "take", "ack", "nack", "nack", "delay", "reject", "extend", "replace", "return", "tick", "tick", "save", "save", "final", "lower", "transfer", "rebuild"}).Draw(t, "event") {
		case "take":
			o.g.Take(SessionID(rapid.IntRange(1, 2).Draw(t, "session")), Credit{Messages: rapid.IntRange(1, ownersMessages).Draw(t, "messages"), Bytes: 1 << 20}, o.now, nil)
		case "ack":
			o.s.Ack(seq, 1, attempt, o.now, nil)
		case "nack":
			o.s.Nack(seq, attempt, 0, []byte("no"), 0, o.now)
		case "delay":
			o.s.Nack(seq, attempt, time.Duration(rapid.IntRange(1, 60).Draw(t, "delay"))*time.Second, nil, 0, o.now)
		case "reject":
			o.s.Reject(seq, attempt, nil, o.now)
		case "extend":
			o.s.Extend(seq, attempt, 20*time.Second, o.now)
		case "replace":
			if o.s.Replace(seq, attempt, []byte{byte(seq)}, o.now) == nil {
				o.s.Nack(seq, attempt, 0, nil, 0, o.now)
			}
		case "return":
			by, _ := o.s.Holder(seq)
			o.s.Return(by, seq, 1, attempt, o.now, nil)
		case "tick":
			o.now = o.now.Add(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second)
			o.g.Tick(o.now)
		case "save":
			blob, token := o.s.Checkpoint(nil, false, o.now)
			o.read(t, blob)
			if rapid.Bool().Draw(t, "durable") {
				o.s.Saved(token)
			}
		case "final":
			blob, _ := o.s.Checkpoint(nil, true, o.now)
			o.read(t, blob)
		case "lower":
			spec := o.g.spec
			spec.MaxDeliveries = rapid.IntRange(1, 4).Draw(t, "max")
			o.g.Update(spec, o.now)
		case "transfer":
			for to := range Destination(Destinations) {
				for _, x := range o.g.TakeTransfers(to, ownersMessages, nil) {
					switch rapid.SampledFrom([]string{"done", "failed", "unknown"}).Draw(t, "outcome") {
					case "done":
						x.Share.Transferred(x.Seq, o.now)
					case "failed":
						x.Share.TransferFailed(x.Seq, false, o.now.Add(time.Second), o.now)
					default:
						x.Share.TransferFailed(x.Seq, true, o.now.Add(time.Second), o.now)
					}
				}
			}
		case "rebuild":
			o.g.Rebuild(o.s, o.now)
		}
		if err := o.g.check(); err != nil {
			t.Fatal(err)
		}
		given := o.s.State(o.now)
		o.read(t, given.Append(nil))
	}
}

func (o *owner) read(t *rapid.T, blob []byte) State {
	st, err := DecodeState(blob)
	if err != nil {
		t.Fatalf("a checkpoint cannot be read: %v\n%+v", err, o.s.State(o.now).messages)
	}
	return st
}

// leave is what an owner saved last: it dies, gives the share away, or gives it away and takes acks after that.
func (o *owner) leave(t *rapid.T) State {
	switch rapid.SampledFrom([]string{"dies", "ends", "gives away", "takes late acks"}).Draw(t, "end") {
	case "dies":
		blob, _ := o.s.Checkpoint(nil, false, o.now)
		return o.read(t, blob)
	case "ends":
		blob, _ := o.s.Checkpoint(nil, true, o.now)
		return o.read(t, blob)
	case "gives away":
		st := o.s.State(o.now)
		return o.read(t, st.Append(nil))
	}
	st := o.s.State(o.now)
	for seq := core.Seq(1); seq <= ownersMessages; seq++ {
		if rapid.Bool().Draw(t, "late ack") {
			st.Ack(seq, st.messages[seq].attempts, o.now)
		}
	}
	return o.read(t, st.Append(nil))
}

// TestOwners_MergedStatesGoOn has several owners of a share begin from one state, live side by side, and leave what
// they saved to the owners after them. Every checkpoint can be read again, a merge counts the same in every order, and
// a message that is settled for one of them is settled for all after them.
func TestOwners_MergedStatesGoOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := core.GroupSpec{
			MaxDeliveries: rapid.SampledFrom([]int{1, 2, 3, core.UnlimitedDeliveries}).Draw(t, "max"), LockTimeout: 10 * time.Second, NoNackThrottle: true,
			Exhausted: rapid.SampledFrom([]core.Exhausted{core.ExhaustedDLQ, core.ExhaustedBlock, core.ExhaustedDrop}).Draw(t, "exhausted"),
		}
		if rapid.Bool().Draw(t, "no breaker") {
			spec.Breaker = core.BreakerOff
		}
		kind := rapid.SampledFrom([]string{"log", "timers", "retry queue"}).Draw(t, "kind")
		if kind != "retry queue" && rapid.IntRange(0, 4).Draw(t, "once") == 0 { // such a group has none
			spec.Delivery = core.AtMostOnce
		}
		spec = spec.WithDefaults()
		now := start
		var st State
		for range rapid.IntRange(1, 3).Draw(t, "generations") {
			var left []State
			latest := now
			for range rapid.IntRange(1, 3).Draw(t, "owners") {
				o := beginOwner(t, spec, kind, st, now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "begins"))*time.Second))
				o.live(t, rapid.IntRange(1, 12).Draw(t, "events"))
				one := o.leave(t)
				if rapid.IntRange(0, 3).Draw(t, "clock") == 0 {
					one.Shift(-time.Duration(rapid.IntRange(0, 100).Draw(t, "shift")) * time.Second)
				}
				left = append(left, one)
				latest = later(latest, o.now)
			}
			before := st
			st = merged(left...)
			sameMerge(t, st, left)
			for _, one := range append(left, before) {
				for seq := core.Seq(1); seq <= ownersMessages; seq++ {
					if one.done.Done(seq) && !st.done.Done(seq) {
						t.Fatalf("seq %d was settled", seq)
					}
				}
			}
			blob := st.Append(nil)
			if _, err := DecodeState(blob); err != nil {
				t.Fatalf("the merged state cannot be read: %v", err)
			}
			now = latest
		}
		beginOwner(t, spec, kind, st, now).live(t, 12)
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sameMerge merges states the other way round, and twice.
func sameMerge(t *rapid.T, st State, left []State) {
	reversed := State{}
	for i := range left {
		reversed.Merge(left[len(left)-1-i])
	}
	for seq := core.Seq(1); seq <= ownersMessages; seq++ {
		a, b := st.messages[seq], reversed.messages[seq]
		if a.finality() != b.finality() || a.attempts != b.attempts || a.notCounted != b.notCounted || a.unsure != b.unsure || a.kind != b.kind && max(a.kind, b.kind) >= kindBlocked {
			t.Fatalf("seq %d is %+v, and merged in the other order %+v", seq, a, b)
		}
		if a.unsure > mostUnsure || uint16(a.unsure) > a.notCounted || a.notCounted > a.attempts {
			t.Fatalf("seq %d is %+v", seq, a)
		}
	}
	if st.Consumed() != reversed.Consumed() {
		t.Fatalf("%d are consumed, in the other order %d", st.Consumed(), reversed.Consumed())
	}
	if diff := cmp.Diff(st.plain(), merged(st, st).plain(), cmp.AllowUnexported(entry{})); diff != "" {
		t.Fatalf("merged twice (-once +twice):\n%s", diff)
	}
}
