package seal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
)

// reply is an answer that carries a length, and who gave it.
type reply struct {
	host core.HostID
	weak bool
	core.FenceAnswer
}

// view is a set of answers, sorted by what can be believed.
type view struct {
	usable    []reply // ok and weak ones
	suspect   []core.HostID
	damaged   []reply // of the suspect ones, those on their own disks
	missing   []core.HostID
	gone      int // of the suspect ones: another disk answered, or an operator declared that the store is gone
	anyOK     bool
	committed core.Seq // highest that anybody reports
	end       core.Seq // persisted L
	hasEnd    bool
	twoEnds   bool
}

// grade sorts the answers in the order of the replica set. It does not rely on a store's own grading alone: a wrong
// identity, a committed seq above the last, or a health this build does not know make an answer suspect.
func grade(in Input) view {
	var v view
	for _, h := range in.Replicas {
		a, ok := in.Answers[h]
		if !ok && slices.Contains(in.Gone, h) {
			v.suspect = append(v.suspect, h)
			v.gone++
			continue
		}
		if !ok {
			v.missing = append(v.missing, h)
			continue
		}
		v.committed = max(v.committed, a.Committed)
		if foreign(in, h, a) {
			v.suspect = append(v.suspect, h) // another disk: neither its length nor its end is this replica's
			if a.Identity.Store == h {
				v.gone++
			}
			continue
		}
		if a.Sealed {
			v.twoEnds = v.twoEnds || v.hasEnd && v.end != a.L
			v.end, v.hasEnd = a.L, true
		}
		switch {
		case a.Committed > a.Last && !(a.Sealed && a.Committed <= a.L):
			v.suspect = append(v.suspect, h)
			v.damaged = append(v.damaged, reply{h, true, a})
		case a.Absent && (a.Health == core.HealthOK || a.Health == core.HealthWeak):
			a.Last, a.Checksum = 0, 0
			v.usable = append(v.usable, reply{h, true, a})
		case a.Health == core.HealthOK:
			v.anyOK = true
			v.usable = append(v.usable, reply{h, false, a})
		case a.Health == core.HealthWeak:
			v.usable = append(v.usable, reply{h, true, a})
		default:
			v.suspect = append(v.suspect, h)
			v.damaged = append(v.damaged, reply{h, true, a})
		}
	}
	return v
}

func foreign(in Input, h core.HostID, a core.FenceAnswer) bool {
	if a.Identity.Store != h {
		return true
	}
	want, known := in.Disks[h]
	return known && want != a.Identity.Disk
}

// counting is the answers that count without an operator's word.
func (v view) counting(floor core.Seq, n int) []reply {
	all := len(v.missing) == 0 && n > 0
	var out []reply
	for _, r := range v.usable {
		if !r.weak || v.anyOK || all || floor > 0 && r.Last >= floor {
			out = append(out, r)
		}
	}
	return out
}

func (v view) endsText(in Input) string {
	var out []string
	for _, h := range in.Replicas {
		if a, ok := in.Answers[h]; ok && a.Sealed && !foreign(in, h, a) {
			out = append(out, fmt.Sprintf("%s at %d", h, a.L))
		}
	}
	return strings.Join(out, ", ")
}
