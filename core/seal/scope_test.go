package seal_test

import (
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

// answers lists every answer a replica can give within a scope, and "missing" as nil.
func answers(h core.HostID, top core.Seq, ends bool) []*core.FenceAnswer {
	out := []*core.FenceAnswer{nil}
	for _, health := range []core.Health{core.HealthOK, core.HealthWeak, core.HealthSuspect} {
		for last := core.Seq(0); last <= top; last++ {
			for committed := core.Seq(0); committed <= top; committed++ {
				a := knows(answer(h, health, last), committed)
				out = append(out, &a)
				for l := core.Seq(0); ends && l <= top; l++ {
					s := sealed(a, l)
					out = append(out, &s)
				}
			}
		}
	}
	return out
}

// each calls f with every combination of answers of n replicas.
func each(n int, choices func(core.HostID) []*core.FenceAnswer, f func([]core.FenceAnswer)) {
	var walk func(i int, chosen []core.FenceAnswer)
	walk = func(i int, chosen []core.FenceAnswer) {
		if i == n {
			f(chosen)
			return
		}
		for _, a := range choices(hosts[i]) {
			if a == nil {
				walk(i+1, chosen)
			} else {
				walk(i+1, append(slices.Clip(chosen), *a))
			}
		}
	}
	walk(0, nil)
}

// safe checks what must hold for any decision on any input.
func safe(t *testing.T, in seal.Input, d seal.Decision) {
	t.Helper()
	var need core.Seq = in.Floor
	ends := map[core.Seq]bool{}
	for _, a := range in.Answers {
		need = max(need, a.Committed)
		if a.Sealed {
			ends[a.L] = true
		}
	}
	unreadable := len(in.Answers) == len(in.Replicas) // … and none of the answers can be believed
	for _, a := range in.Answers {
		unreadable = unreadable && (a.Health == core.HealthSuspect || a.Committed > a.Last && !(a.Sealed && a.Committed <= a.L))
	}
	fail := func(why string) { t.Fatalf("%s\ninput %+v\ndecision %+v", why, in, d) }
	if d.Verdict != seal.Decided {
		if d.Counting != nil || d.Copies != nil || d.L != 0 {
			fail("an undecided decision says what to do")
		}
		return
	}
	switch {
	case len(ends) > 1:
		fail("decided between two ends")
	case len(ends) == 1 && (!ends[d.L] || !d.Adopted):
		fail("a persisted end was not adopted")
	case !d.Forced && d.L < need:
		fail("cut below what was committed")
	case d.Forced && !in.Force:
		fail("forced by nobody")
	case unreadable:
		if d.Holders != nil || d.Counting != nil || d.L < need || d.Alarm == "" || !d.Forced && len(in.Replicas) > 1 {
			fail("an extent that cannot be read was not ended beyond all that is known, with an alarm")
		}
		return
	case len(d.Holders) == 0:
		fail("nobody holds the extent")
	case len(d.Holders)+len(d.Copies) != len(d.Counting):
		fail("a counting replica is neither complete nor copied to")
	}
	longest := core.Seq(0)
	for _, h := range d.Counting {
		a := in.Answers[h]
		if a.Health == core.HealthSuspect || a.Committed > a.Last && !a.Sealed {
			fail("a suspect answer counts")
		}
		longest = max(longest, a.Last)
		if (a.Last >= d.L) != slices.Contains(d.Holders, h) || (a.Last > d.L) != slices.Contains(d.Truncate, h) {
			fail("holders or truncations are wrong")
		}
	}
	if !d.Adopted && longest != d.L {
		fail("the longest counting replica does not decide")
	}
	for _, c := range d.Copies {
		if c.From != d.Holders[0] || c.First != in.Answers[c.To].Last+1 || c.Last != d.L || c.First > c.Last {
			fail("a copy is not the missing tail")
		}
	}
}

func TestDecide_SmallScope(t *testing.T) {
	scopes := []struct {
		n    int
		top  core.Seq
		ends bool
	}{{1, 2, true}, {2, 2, false}, {2, 1, true}, {3, 1, false}}
	if !testing.Short() {
		scopes = append(scopes, struct {
			n    int
			top  core.Seq
			ends bool
		}{3, 2, false})
	}
	decisions := 0
	for _, s := range scopes {
		each(s.n, func(h core.HostID) []*core.FenceAnswer { return answers(h, s.top, s.ends) }, func(as []core.FenceAnswer) {
			for floor := core.Seq(0); floor <= s.top; floor++ {
				in := from(s.n, floor, as...)
				d := seal.Decide(in)
				safe(t, in, d)
				f := seal.Decide(force(in))
				safe(t, force(in), f)
				if d.Verdict == seal.Decided && (f.Forced || f.L != d.L) {
					t.Fatalf("force changes a decision that needs none: %+v, forced %+v", d, f)
				}
				decisions++
			}
		})
	}
	t.Logf("%d inputs", decisions)
}

// TestDecide_AckedSurvives plays the protocol in small: honest lengths, of which the minimum was acknowledged; any
// subset answers; any replicas but one restarted, and each of those may have lost some of its tail. A replica may be
// lost with its store, which an operator says. Every decision keeps the acknowledged records, and a second sealer that
// sees another subset after the end was told agrees with the first.
func TestDecide_AckedSurvives(t *testing.T) {
	const top = 2
	type replica struct {
		stored core.Seq // honestly, at the time of the acks
		says   *core.FenceAnswer
		gone   bool
	}
	play := func(n int, rs []replica, floors []core.Seq) {
		acked := core.Seq(top)
		var as []core.FenceAnswer
		for _, r := range rs {
			acked = min(acked, r.stored)
			if r.says != nil {
				as = append(as, *r.says)
			}
		}
		for _, floor := range floors {
			if floor != 0 && floor != acked {
				continue // the writer sends what it committed, or nothing
			}
			in := from(n, floor, as...)
			for i, r := range rs {
				if r.gone {
					in.Gone = append(in.Gone, hosts[i])
				}
			}
			d := seal.Decide(in)
			if d.Verdict != seal.Decided {
				continue
			}
			if d.L < acked {
				t.Fatalf("acknowledged %d, decided %d: %+v", acked, d.L, in)
			}
			for _, told := range d.Holders {
				later := from(n, in.Floor, sealed(ok(told, d.L), d.L))
				for i, r := range rs {
					if r.says == nil && !r.gone { // the ones the first sealer missed turn up
						later.Answers[hosts[i]] = ok(hosts[i], r.stored)
					}
				}
				if e := seal.Decide(later); e.Verdict != seal.Decided || e.L != d.L {
					t.Fatalf("first sealer %+v\nsecond sealer %+v\non %+v", d, e, later)
				}
			}
		}
	}
	for n := 2; n <= 3; n++ {
		var walk func(i int, rs []replica, honest bool)
		walk = func(i int, rs []replica, honest bool) {
			if i == n {
				if honest {
					play(n, rs, []core.Seq{0, 1, 2})
				}
				return
			}
			h := hosts[i]
			for stored := core.Seq(0); stored <= top; stored++ {
				walk(i+1, append(slices.Clip(rs), replica{stored: stored}), true) // not reached, but intact
				walk(i+1, append(slices.Clip(rs), replica{stored: stored, gone: true}), honest)
				a := ok(h, stored)
				walk(i+1, append(slices.Clip(rs), replica{stored: stored, says: &a}), true)
				for left := core.Seq(0); left <= stored; left++ { // restarted; a lying disk lost some
					w := weak(h, left)
					walk(i+1, append(slices.Clip(rs), replica{stored: stored, says: &w}), honest || left == stored)
				}
			}
		}
		walk(0, nil, false)
	}
}
