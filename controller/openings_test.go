package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

// talk is output hosts that tell one controller of open breakers.
type talk struct {
	t        *testing.T
	x        *openings
	now      time.Time
	counters map[string]uint64
	runs     map[string]core.RunID
}

func newTalk(t *testing.T) *talk {
	return &talk{t: t, x: newOpenings(), now: time.Unix(1000, 0), counters: make(map[string]uint64), runs: make(map[string]core.RunID)}
}

func groupNumber(n int) core.GroupID {
	return core.GroupID{ID: core.ID{byte(n >> 16), byte(n >> 8), byte(n), 1}}
}

// asks has a host tell of openings, group:number, and answers what it is told, host/group:number; "same" when nothing
// is.
func (k *talk) asks(host string, open ...string) (told []string) {
	k.t.Helper()
	run, ok := k.runs[host]
	if !ok {
		run = core.RunID{ID: core.ID{byte(len(k.runs) + 1), host[0]}}
		k.runs[host] = run
	}
	var own []core.BreakerOpening
	for _, o := range open {
		var group int
		var number uint64
		if _, err := fmt.Sscanf(o, "%d:%d", &group, &number); err != nil {
			k.t.Fatal(err)
		}
		own = append(own, core.BreakerOpening{Group: groupNumber(group), Number: number})
	}
	known := k.counters[host]
	counter, others := k.x.exchange(catalog.HostRun{Host: core.HostID(host), Run: run}, own, known, k.now)
	k.counters[host] = counter
	if counter == known {
		if others != nil {
			k.t.Errorf("%s is told %v although nothing changed", host, others)
		}
		return []string{"same"}
	}
	for _, o := range others {
		told = append(told, fmt.Sprintf("%c/%d:%d", o.Run.ID[1], o.Group.ID[2], o.Number))
	}
	slices.Sort(told)
	return told
}

func (k *talk) expect(what string, got []string, want ...string) {
	k.t.Helper()
	if !slices.Equal(got, want) {
		k.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestOpenings_AreToldToTheOtherHosts goes through openings that begin, go on, and end.
func TestOpenings_AreToldToTheOtherHosts(t *testing.T) {
	k := newTalk(t)
	k.expect("nothing is open", k.asks("a"), "same")
	k.expect("a's own", k.asks("a", "1:1"))
	k.expect("b hears", k.asks("b"), "a/1:1")
	k.expect("b heard", k.asks("b"), "same")
	k.expect("a goes on", k.asks("a", "1:1"), "same")
	k.expect("b heard all", k.asks("b"), "same")
	k.expect("b has some, too", k.asks("b", "1:5", "2:1"), "a/1:1")
	k.expect("a hears", k.asks("a", "1:1"), "b/1:5", "b/2:1")
	k.expect("another opening", k.asks("a", "1:2"), "b/1:5", "b/2:1")
	k.expect("b hears of it", k.asks("b", "1:5", "2:1"), "a/1:2")
	k.expect("one ends", k.asks("b", "2:1"), "a/1:2")
	k.expect("a hears of the rest", k.asks("a", "1:2"), "b/2:1")
	k.asks("a")
	k.asks("b")
	k.expect("a hears that all ended", k.asks("a"))
	k.expect("b hears that all ended", k.asks("b"), "same")
	k.expect("a third one hears that there is nothing", k.asks("c"))
	if n := len(k.x.mu.hosts); n > 0 {
		t.Errorf("%d hosts are remembered", n)
	}
}

// TestOpenings_EndWithTheirHost: another run of it, or silence.
func TestOpenings_EndWithTheirHost(t *testing.T) {
	k := newTalk(t)
	k.asks("a", "1:1")
	k.expect("b hears", k.asks("b"), "a/1:1")
	k.runs["a"] = core.RunID{ID: core.ID{77, 'A'}}
	k.asks("a")
	k.expect("another run of a has none", k.asks("b"))
	k.asks("a", "1:1")
	k.expect("the same of another run", k.asks("b"), "A/1:1")
	k.now = k.now.Add(openingsKept)
	k.expect("a may be late", k.asks("b"), "same")
	k.now = k.now.Add(1)
	k.expect("a is silent", k.asks("b"))
	k.asks("a", "1:1")
	k.expect("a is back", k.asks("b"), "A/1:1")
}

// TestOpenings_TwoControllers know the same, each by what it was told.
func TestOpenings_TwoControllers(t *testing.T) {
	one, two := newTalk(t), newTalk(t)
	one.asks("a", "1:1")
	one.expect("of the first", one.asks("b"), "a/1:1")
	two.expect("the second was told nothing", two.asks("b"), "same")
	two.asks("a", "1:1")
	two.expect("of the second", two.asks("b"), "a/1:1")
}

// TestOpenings_TheNewestAreTold of more than fit into an answer; of too many hosts the later ones are not heard.
func TestOpenings_TheNewestAreTold(t *testing.T) {
	k := newTalk(t)
	all := func(from int) (out []string) {
		for i := range core.MaxOpenings {
			out = append(out, fmt.Sprintf("%d:%d", from+i, 1))
		}
		return out
	}
	k.asks("a", all(0)...)
	k.asks("c", all(5000)[:10]...)
	told := k.asks("b")
	if n := slices.IndexFunc(told, func(s string) bool { return s[0] == 'c' }); len(told) != core.MaxOpenings || n != len(told)-10 {
		t.Errorf("%d are told, those of c from %d on", len(told), n)
	}
	k = newTalk(t)
	k.asks("a", "1:1")
	for i := range 2 * mostOpeningHosts {
		k.x.exchange(catalog.HostRun{Host: core.HostID(fmt.Sprint(i))}, []core.BreakerOpening{{Number: 1}}, 0, k.now)
	}
	if n := len(k.x.mu.hosts); n != mostOpeningHosts {
		t.Errorf("%d hosts are remembered", n)
	}
	k.asks("a", "9:9")
	if told := k.asks("c"); !slices.Contains(told, "a/9:9") {
		t.Error("one that was heard before is not any more")
	}
}

// TestRenewShares_Openings: hosts hear of each other by their renewals, also while the metadata are away; what is too
// much, or no id, is refused.
func TestRenewShares_Openings(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		group := core.NewID(time.Now())
		renew := func(o *fakeOutput, counter uint64, open ...*pb.BreakerOpening) (*pb.RenewSharesResponse, error) {
			resp, err := (&service{r.ctl.Host}).RenewShares(r.t.Context(), connect.NewRequest(&pb.RenewSharesRequest{
				Owner: string(o.id), Run: o.run.ID[:], OpeningsCounter: counter, Openings: open,
			}))
			if err != nil {
				return nil, convert.FromRPC(err)
			}
			return resp.Msg, nil
		}
		a, b := r.outputs[0], r.outputs[1]
		liar := b.run // that a speaks for b does not count
		_, err := renew(a, 0, &pb.BreakerOpening{Group: group[:], Number: 3, Run: liar.ID[:]})
		r.ok(err)
		got, err := renew(b, 0)
		r.ok(err)
		if len(got.Openings) != 1 || got.OpeningsCounter == 0 || core.ID(got.Openings[0].Group) != group || core.ID(got.Openings[0].Run) != a.run.ID || got.Openings[0].Number != 3 {
			t.Errorf("told %v", got)
		}
		again, err := renew(b, got.OpeningsCounter)
		r.ok(err)
		if len(again.Openings) != 0 || again.OpeningsCounter != got.OpeningsCounter {
			t.Errorf("told again %v", again)
		}
		for name, open := range map[string][]*pb.BreakerOpening{
			"too many": make([]*pb.BreakerOpening, core.MaxOpenings+1), "no group": {{}}, "a long group": {{Group: make([]byte, 17)}}, "a short run": {{Group: group[:], Run: []byte{1}}},
		} {
			if _, err := renew(a, 0, open...); core.CodeOf(err) != core.CodeTooLarge && core.CodeOf(err) != core.CodeBadID {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// BenchmarkOpenings_None is what a renewal costs more while no breaker is open.
func BenchmarkOpenings_None(b *testing.B) {
	x, host, now := newOpenings(), catalog.HostRun{Host: "a"}, time.Now()
	b.ReportAllocs()
	for b.Loop() {
		x.exchange(host, nil, 0, now)
	}
}
