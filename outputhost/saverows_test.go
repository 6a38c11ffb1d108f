package outputhost

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestRowsOf_AddUpToTheBudget: the parts of all hosts are the budget, and no two differ by more than one row.
func TestRowsOf_AddUpToTheBudget(t *testing.T) {
	for n := 1; n <= 1200; n += 7 {
		var hosts []membership.Host
		for i := range n {
			hosts = append(hosts, membership.Host{ID: core.HostID(fmt.Sprint("out", i))})
		}
		sum, least, most := 0, 1000, 0
		for _, h := range hosts {
			rows := rowsOf(1000, hosts, h.ID)
			sum, least, most = sum+rows, min(least, rows), max(most, rows)
		}
		if want := max(1000, n); sum != want || most-least > 1 || least < 1 {
			t.Errorf("%d hosts have %d rows, from %d to %d each; want %d", n, sum, least, most, want)
		}
	}
	if rows := rowsOf(1000, nil, "out"); rows != 1000 {
		t.Errorf("a host that sees none, not even itself, has %d rows, want all", rows)
	}
}

// TestRowWindow_NoSecondHasMoreThanTheBudget: a host writes as many rows as it may, at any times.
func TestRowWindow_NoSecondHasMoreThanTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const budget = 100
		var w rowWindow
		var all []rowWrite
		now := time.Hour
		for range rapid.IntRange(1, 100).Draw(t, "writes") {
			now += time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond
			rows := max(0, min(w.room(budget, now), rapid.IntRange(0, 2*budget).Draw(t, "rows")))
			w.spend(rows, 0, now)
			all = append(all, rowWrite{at: now, rows: rows})
			sum := 0
			for _, x := range all {
				if now-x.at < rowSecond-rowGrain {
					sum += x.rows
				}
			}
			if sum > budget {
				t.Fatalf("%d rows were written in a second, want up to %d", sum, budget)
			}
			if next := w.next(now); next > rowUrgent || next <= 0 {
				t.Fatalf("there may be more room in %s", next)
			}
			if len(w.writes) > int(rowUrgent/rowGrain)+1 {
				t.Fatalf("the window has %d writes", len(w.writes))
			}
		}
		if room := w.room(budget, now+rowUrgent); room != budget {
			t.Fatalf("after a rest there is room for %d rows, want %d", room, budget)
		}
	})
}

// TestSaveLine_TakesTheOldestFirst compares the line with a list.
func TestSaveLine_TakesTheOldestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			s     *share
			since time.Duration
			due   bool
		}
		const most = 10 * time.Second
		var l saveLine
		l.base = ^uint32(0) - uint32(rapid.IntRange(0, 30).Draw(t, "places until they wrap around"))
		var want []entry
		shares := make([]*share, 12)
		for i := range shares {
			shares[i] = &share{}
		}
		now := time.Hour
		at := func(s *share) int {
			return slices.IndexFunc(want, func(e entry) bool { return e.s == s })
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			s := shares[rapid.IntRange(0, len(shares)-1).Draw(t, "share")]
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				l.add(s, now)
				if at(s) < 0 {
					want = append(want, entry{s: s, since: now})
				}
			case 2:
				l.remove(s)
				if i := at(s); i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
			case 3:
				l.begin()
				for i := range want {
					want[i].due = true
				}
			case 4:
				now += time.Duration(rapid.IntRange(0, 6).Draw(t, "seconds")) * time.Second
			default:
				room := rapid.IntRange(-2, 5).Draw(t, "room")
				got, left, _ := l.take(nil, room, most, now)
				n := 0
				for n < len(want) && want[n].due && (n < room || now-want[n].since >= most) {
					if n >= len(got) || got[n] != want[n].s {
						t.Fatalf("%d shares are taken, which are not the oldest", len(got))
					}
					n++
				}
				if n != len(got) {
					t.Fatalf("%d shares are taken, want %d", len(got), n)
				}
				want = slices.Delete(want, 0, n)
				due := 0
				for _, e := range want {
					if e.due {
						due++
					}
				}
				if left != due {
					t.Fatalf("%d shares are due still, want %d", left, due)
				}
			}
			if l.count != len(want) {
				t.Fatalf("%d shares are in the line, want %d", l.count, len(want))
			}
		}
	})
}
