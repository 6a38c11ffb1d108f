// Package seal owns the decision on the last seq of an extent, from the answers of its fenced replicas.
package seal

import (
	"fmt"
	"strings"

	"github.com/columbamq/columba/core"
)

// Input is what a sealer knows when it decides.
type Input struct {
	Replicas []core.HostID // the whole replica set, N
	// Floor is the committed seq that the writer sent with its request for the seal, after which it acknowledges
	// nothing more on its own. 0 when the writer sent none (it died) or had committed nothing.
	Floor   core.Seq
	Answers map[core.HostID]core.FenceAnswer // of the replicas that were fenced and answered
	Missing map[core.HostID]error            // why others did not; only for the text of a decision
	Disks   map[core.HostID]core.DiskID      // identities expected, as far as known
	// Gone are stores that an operator declared to be gone for good. One that gives no answer counts like one that answers
	// with another disk. One that answers is believed instead.
	Gone []core.HostID
	// Force is an operator's word after a long wait. It lets weak answers alone decide, even below what was committed.
	// When all replicas answered and all are damaged, it lets the extent end where they end, and when all disks are known
	// to be gone, at 0.
	Force bool
}

// Verdict is whether the extent's end is decided.
type Verdict uint8

const (
	Stay    Verdict = iota // keep the extent sealing, and ask again
	Decided                // L is the end
)

// Alarm says that waiting alone will not help. The zero Alarm is none.
type Alarm string

const (
	AlarmTwoEnds    Alarm = "two_ends"    // replicas persisted different Ls: the protocol was broken
	AlarmBelowFloor Alarm = "below_floor" // acknowledged records are on no replica that counts
	AlarmDiverged   Alarm = "diverged"    // replicas of the same length differ
	AlarmSuspect    Alarm = "suspect"     // all replicas answered, and none can be read
	AlarmForced     Alarm = "forced"      // an operator's force was what decided
)

// Decision is the outcome. With Stay only Reason, Alarm and Grades are set.
type Decision struct {
	Verdict    Verdict
	L          core.Seq
	Checksum   uint32        // rolling, at L; valid with HasSum
	HasSum     bool          // a holder ends exactly at L, or there is no holder
	Adopted    bool          // L was persisted by a replica before
	Forced     bool          // only Force made it possible: flag and audit it
	Lost       core.Seq      // records above L that were known to be committed; only with Forced
	Counting   []core.HostID // replicas whose answers carried the decision, in the order of the set
	Holders    []core.HostID // of those, complete to L already; none when no replica can be read
	Copies     []Copy        // what makes the others complete
	Truncate   []core.HostID // replicas to be cut back to L
	Suspect    []core.HostID // answered with nothing to be believed, or declared to be gone
	NotReached []core.HostID // to be told later
	Reason     string
	Alarm      Alarm
}

// Copy is the tail First … Last that To lacks; any holder has it, From is the first of them.
type Copy struct {
	From, To    core.HostID
	First, Last core.Seq
}

// Decide applies the table of the protocol:
//
//	answer    counts
//	ok        always
//	weak      if some answer is ok, or all N answered, or its length is at least the writer's floor
//	suspect   never; it carries no length and supports nobody, but what it knows as committed is believed
//	missing   never
//	gone      never; like suspect, it is one of the answers of "all N answered"
//
// An extent with one replica, which is damaged on its own disk, ends where that replica ends: nothing else will ever be
// known of it.
//
// L is the L that a replica persisted before, else the largest length that counts. It is at least the floor and every
// committed seq reported, or there is no decision. Two sealers that see different subsets of the replicas may decide
// differently: the CAS that records L chooses, and both go on with what it recorded.
func Decide(in Input) Decision {
	v := grade(in)
	d := Decision{Suspect: v.suspect, NotReached: v.missing}
	if v.twoEnds {
		return d.stay(AlarmTwoEnds, "replicas persisted different ends: %s; compare them by hand, the extent must not be sealed", v.endsText(in))
	}
	counting := v.counting(in.Floor, len(in.Replicas))
	forced := false
	if v.hasEnd {
		counting = v.usable // the end is fixed; who may hold it is only a matter of copying
	} else if len(counting) == 0 && in.Force && len(v.usable) > 0 {
		counting, forced = v.usable, true
	}
	if len(v.usable) == 0 && len(v.missing) == 0 && len(v.damaged) > 0 && (in.Force || len(in.Replicas) == 1) {
		return d.unreadable(in, v)
	}
	if len(counting) == 0 && !v.hasEnd {
		if in.Force && v.gone == len(in.Replicas) && v.gone > 0 {
			return d.empty(in, v)
		}
		return d.nobody(in, v)
	}
	l := v.end
	if !v.hasEnd {
		if a, b, differ := diverged(counting); differ {
			return d.stay(AlarmDiverged, "%s and %s both end at seq %d with different checksums; quarantine the damaged one", a.host, b.host, a.Last)
		}
		for _, r := range counting {
			l = max(l, r.Last)
		}
	}
	if need := max(in.Floor, v.committed); l < need {
		if !in.Force || v.hasEnd {
			return d.stay(AlarmBelowFloor, "the extent would end at seq %d, but seq %d was committed; bring back %s", l, need, names(in, v))
		}
		forced = true
		d.Lost = need - l
	}
	d.fill(l, v, counting)
	if len(d.Holders) == 0 { // only an adopted end can lie above everybody
		return d.stay("", "the extent ended at seq %d, but no replica reached holds it all; bring back %s", l, names(in, v))
	}
	d.Verdict, d.L, d.Adopted, d.Forced = Decided, l, v.hasEnd, forced
	if forced {
		d.Alarm = AlarmForced
	}
	d.Reason = fmt.Sprintf("%d of %d replicas count, %d hold all up to seq %d", len(counting), len(in.Replicas), len(d.Holders), l)
	return d
}

// empty ends an extent of which nothing is left.
func (d Decision) empty(in Input, v view) Decision {
	d.Verdict, d.HasSum, d.Forced, d.Alarm, d.Lost = Decided, true, true, AlarmForced, max(in.Floor, v.committed)
	d.Reason = fmt.Sprintf("all of its %d replicas were on other disks", len(in.Replicas))
	return d
}

// unreadable ends an extent of which all replicas answered and none can be read. It has no holders. Its end is the
// highest seq that anything is known of, so that nothing acknowledged lies beyond it: what is lost lies within the
// extent, where repair finds and reports it.
func (d Decision) unreadable(in Input, v view) Decision {
	need := max(in.Floor, v.committed)
	l := v.end
	if !v.hasEnd {
		l = need
		for _, r := range v.damaged {
			l = max(l, r.Last)
		}
	}
	if l < need {
		return d.stay(AlarmBelowFloor, "the extent ended at seq %d, but seq %d was committed; bring back %s", l, need, names(in, v))
	}
	for _, r := range v.damaged {
		if r.Last == l {
			d.Checksum = r.Checksum
			break
		}
	}
	d.Verdict, d.L, d.HasSum, d.Adopted, d.Alarm = Decided, l, true, v.hasEnd, AlarmSuspect
	if len(in.Replicas) > 1 {
		d.Forced, d.Alarm = true, AlarmForced
	}
	d.Reason = fmt.Sprintf("all of its %d replicas answered, and none can be read; they go up to seq %d", len(in.Replicas), l)
	return d
}

// nobody explains a decision without counting answers.
func (d Decision) nobody(in Input, v view) Decision {
	var alarm Alarm
	if len(v.missing) == 0 {
		alarm = AlarmSuspect
	}
	return d.stay(alarm, "%d of %d replicas answered, none of which counts; bring back %s", len(in.Replicas)-len(v.missing), len(in.Replicas), names(in, v))
}

func (d Decision) stay(alarm Alarm, format string, args ...any) Decision {
	return Decision{Suspect: d.Suspect, NotReached: d.NotReached, Alarm: alarm, Reason: fmt.Sprintf(format, args...)}
}

// fill lists who holds what, once L is known.
func (d *Decision) fill(l core.Seq, v view, counting []reply) {
	for _, r := range counting {
		d.Counting = append(d.Counting, r.host)
		if r.Last < l {
			continue
		}
		d.Holders = append(d.Holders, r.host)
		if r.Last == l && !d.HasSum {
			d.Checksum, d.HasSum = r.Checksum, true
		}
	}
	for _, r := range counting {
		if r.Last < l && len(d.Holders) > 0 {
			d.Copies = append(d.Copies, Copy{From: d.Holders[0], To: r.host, First: r.Last + 1, Last: l})
		}
	}
	for _, r := range v.usable {
		if r.Last > l {
			d.Truncate = append(d.Truncate, r.host)
		}
	}
}

// diverged finds two answers of one length that differ.
func diverged(replies []reply) (a, b reply, differ bool) {
	for i, a := range replies {
		for _, b := range replies[i+1:] {
			if a.Last == b.Last && a.Last > 0 && a.Checksum != b.Checksum {
				return a, b, true
			}
		}
	}
	return reply{}, reply{}, false
}

// names lists who would help: those not reached, with the reason, and those not believed.
func names(in Input, v view) string {
	var out []string
	for _, h := range v.missing {
		if err := in.Missing[h]; err != nil {
			out = append(out, fmt.Sprintf("%s (%v)", h, err))
		} else {
			out = append(out, string(h))
		}
	}
	for _, h := range v.suspect {
		out = append(out, fmt.Sprintf("%s (suspect)", h))
	}
	if len(out) == 0 {
		return "the store that lost it, or force the seal"
	}
	return strings.Join(out, ", ")
}
