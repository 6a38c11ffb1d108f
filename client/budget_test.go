package client

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// budgetHost is a host as a budget sees it.
type budgetHost struct {
	a        *account
	granted  int
	recalled int // an answer on its way; -1: none
}

// TestBudget_NeverAsksForMoreThanTheLimit has hosts come, go, send, and answer late, in any order; in the end one host
// sends all, and others may stand still.
func TestBudget_NeverAsksForMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		b, now := newBudget(limit), time.Unix(0, 0)
		hosts := make(map[*consumeStream]*budgetHost)
		var order []*consumeStream
		yielded := 0
		do := func(asks []ask) {
			for _, k := range asks {
				h := hosts[k.stream]
				switch {
				case k.messages == 0 && h.recalled < 0:
					h.recalled, h.granted = h.granted, 0
				case k.messages == 0:
					t.Fatal("recalled twice")
				default:
					h.granted += k.messages
				}
			}
		}
		join := func() {
			s := &consumeStream{}
			a := b.join(s, rapid.IntRange(1, 20).Draw(t, "most"))
			for _, old := range order { // it may be the host of a stream that has ended: it carries what is held of that
				if o := hosts[old].a; o.gone && o.held <= a.most-a.held && rapid.Bool().Draw(t, "carry") {
					n := o.held
					b.returned(o, n)
					b.carried(a, n)
				}
			}
			hosts[s] = &budgetHost{a: a, recalled: -1}
			order = append(order, s)
		}
		check := func() {
			sum := b.left + yielded
			for _, s := range order {
				h := hosts[s]
				if h.a.asked != h.granted+max(0, h.recalled) || h.a.held < 0 || h.a.asked+h.a.held > h.a.most {
					t.Fatalf("account %+v of a host %+v", *h.a, *h)
				}
				sum += h.a.asked + h.a.held
			}
			if sum != limit || b.left < 0 || b.missing != limit-yielded {
				t.Fatalf("left %d, missing %d, %d in all, limit %d, yielded %d", b.left, b.missing, sum, limit, yielded)
			}
		}
		step := func(kind int, h *budgetHost, n int) {
			switch {
			case h.a.gone && kind == 2: // an answer that comes late
				b.recalled(h.a, n)
				kind = -1
			case h.a.gone && (kind == 0 || kind == 4):
				kind = -1
			}
			switch kind {
			case 0:
				n = min(n, h.granted)
				h.granted -= n
				if n > 0 {
					b.arrived(h.a, n, now)
				}
			case 1:
				for range min(n, h.a.held) {
					yielded++
					if b.yielded(h.a) {
						do(b.plan(now))
					}
				}
			case 2:
				if h.recalled >= 0 {
					n, h.recalled = h.recalled, -1
					b.recalled(h.a, n)
				}
			case 3:
				b.returned(h.a, min(n, h.a.held))
			case 4:
				h.a.stopped = !h.a.stopped
			}
			do(b.plan(now))
		}
		giveUp := func() {
			for _, s := range b.unanswered(now) {
				if s != order[0] {
					b.leave(hosts[s].a)
					hosts[s].granted, hosts[s].recalled = 0, -1
				}
			}
			do(b.plan(now))
		}
		join()
		do(b.plan(now))
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "ms")) * time.Millisecond)
			switch kind := rapid.IntRange(0, 8).Draw(t, "kind"); {
			case kind == 8 && len(order) < 8:
				join()
				do(b.plan(now))
			case kind == 7 && len(order) > 1: // the first one stays
				h := hosts[order[rapid.IntRange(1, len(order)-1).Draw(t, "gone")]]
				if !h.a.gone {
					b.leave(h.a)
					h.granted, h.recalled = 0, -1
				}
				do(b.plan(now))
			case kind == 6:
				do(b.turn(now))
				giveUp()
			default:
				h := hosts[order[rapid.IntRange(0, len(order)-1).Draw(t, "host")]]
				step(kind%5, h, rapid.IntRange(1, 10).Draw(t, "n"))
			}
			check()
		}
		// One host has all that is still wanted. It sends it within some turns for each other host, and recallTimeout for
		// each that stands still.
		still := make(map[*consumeStream]bool)
		for i, s := range order {
			hosts[s].a.stopped = hosts[s].a.gone
			still[s] = i > 0 && rapid.Bool().Draw(t, "still")
		}
		do(b.plan(now))
		for turns := 0; b.missing > 0; turns++ {
			if turns > (20+int(recallTimeout/turnTime))*len(order)+2*limit {
				t.Fatalf("%d are missing after %d turns: %+v", b.missing, turns, *b)
			}
			do(b.turn(now))
			giveUp()
			for _, s := range order {
				if !still[s] {
					step(2, hosts[s], 0)
				}
				step(1, hosts[s], limit)
			}
			step(0, hosts[order[0]], limit) // before its turn is over
			now = now.Add(turnTime)
			check()
		}
	})
}
