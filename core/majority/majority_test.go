package majority

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

func TestJudge(t *testing.T) {
	type others = map[core.HostID]Answer
	for _, x := range []struct {
		name   string
		has    bool
		others others
		want   Verdict
		text   string
		unsure bool
	}{
		{name: "it has a majority, and is alone", has: true, want: Verdict{State: Has}},
		{name: "it has a majority, whatever others say", has: true, others: others{"a": Silent, "b": Lacks, "c": Unsure}, want: Verdict{State: Has}},
		{name: "it knew nobody else", want: Verdict{State: Outage}, text: "outage of the metadata"},
		{name: "it reaches all others, which lack one, too", others: others{"a": Lacks, "b": Lacks}, want: Verdict{State: Outage}, text: "outage of the metadata"},
		{name: "it reaches nobody", others: others{"b": Silent, "a": Silent}, want: Verdict{State: Cut, Silent: []core.HostID{"a", "b"}}, text: "cut off from a, b"},
		{name: "it does not reach one of two", others: others{"a": Lacks, "b": Silent}, want: Verdict{State: Cut, Silent: []core.HostID{"b"}}, text: "cut off from b"},
		{name: "it reaches one that has a majority", others: others{"a": Holds, "b": Lacks}, want: Verdict{State: Cut, Having: []core.HostID{"a"}}, text: "cut off from the metadata, unlike a"},
		{
			name: "it reaches one that has a majority, and another one not at all", others: others{"a": Silent, "b": Holds},
			want: Verdict{State: Cut, Silent: []core.HostID{"a"}, Having: []core.HostID{"b"}}, text: "cut off from the metadata, unlike b, and from a",
		},
		{name: "one that it reaches does not know yet", others: others{"a": Unsure, "b": Lacks}, unsure: true},
		{name: "it does not matter what one does not know yet", others: others{"a": Unsure, "b": Silent}, want: Verdict{State: Cut, Silent: []core.HostID{"b"}}, text: "cut off from b"},
	} {
		got, sure := Judge(x.has, x.others)
		if sure == x.unsure {
			t.Errorf("%s: sure is %v", x.name, sure)
		}
		if x.unsure {
			continue
		}
		if diff := cmp.Diff(x.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", x.name, diff)
		}
		if got.Text() != x.text {
			t.Errorf("%s: the text is %q, want %q", x.name, got.Text(), x.text)
		}
	}
}
