package core

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSelection_Matches(t *testing.T) {
	at := time.UnixMicro(1_000_000)
	mine, other := MessageID{ID: ID{1}}, MessageID{ID: ID{2}}
	l := Letter{ID: mine, Since: at.UnixMicro(), Attempts: 3, Reason: []byte("nack"), Error: []byte("no such trip 7")}
	for name, c := range map[string]struct {
		s    Selection
		want bool
	}{
		"all":                 {Selection{}, true},
		"its id":              {Selection{IDs: []MessageID{other, mine}}, true},
		"another id":          {Selection{IDs: []MessageID{other}}, false},
		"before it died":      {Selection{DeadBefore: at}, false},
		"before later":        {Selection{DeadBefore: at.Add(time.Microsecond)}, true},
		"since it died":       {Selection{DeadAfter: at}, true},
		"since later":         {Selection{DeadAfter: at.Add(time.Microsecond)}, false},
		"its reason":          {Selection{Reasons: []string{"rejected", "nack"}}, true},
		"a part of a reason":  {Selection{Reasons: []string{"nac"}}, false},
		"a part of its error": {Selection{Reasons: []string{"such trip"}}, true},
		"another reason":      {Selection{Reasons: []string{"rejected"}}, false},
		"enough attempts":     {Selection{MinAttempts: 3, MaxAttempts: 3}, true},
		"too few attempts":    {Selection{MinAttempts: 4}, false},
		"too many attempts":   {Selection{MaxAttempts: 2}, false},
		"one of two":          {Selection{IDs: []MessageID{mine}, MaxAttempts: 2}, false},
	} {
		if got := c.s.Matches(l); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if err := c.s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if all := c.s.IsAll(); all != (name == "all") {
			t.Errorf("%s: all is %v", name, all)
		}
	}
}

func TestSelection_Refuses(t *testing.T) {
	at := time.Unix(1, 0)
	for name, s := range map[string]Selection{
		"too many ids":     {IDs: make([]MessageID, MaxSelectedIDs+1)},
		"id of zeros":      {IDs: make([]MessageID, 1)},
		"too many reasons": {Reasons: strings.Split(strings.Repeat("a,", MaxSelectedReasons), ",")},
		"empty reason":     {Reasons: []string{""}},
		"long reason":      {Reasons: []string{strings.Repeat("x", maxSelectedReason+1)}},
		"below zero":       {MinAttempts: -1},
		"no attempts":      {MinAttempts: 3, MaxAttempts: 2},
		"no time":          {DeadBefore: at, DeadAfter: at},
	} {
		if err := s.Validate(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestSelection_Properties: each further condition only leaves out more, and every dead letter fits what it is itself.
func TestSelection_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letter := func(label string) Letter {
			return Letter{
				ID: MessageID{ID: ID{rapid.Byte().Draw(t, label), 1}}, Since: rapid.Int64Range(0, 100).Draw(t, label), Attempts: rapid.IntRange(1, 5).Draw(t, label),
				Reason: []byte(rapid.SampledFrom([]string{"nack", "rejected"}).Draw(t, label)), Error: []byte(rapid.StringMatching("[ab]{1,3}").Draw(t, label)),
			}
		}
		like := letter("like")
		whole := Selection{
			IDs: []MessageID{like.ID}, DeadBefore: time.UnixMicro(like.Since + 1), DeadAfter: time.UnixMicro(like.Since), Reasons: []string{string(like.Error)},
			MinAttempts: like.Attempts, MaxAttempts: like.Attempts,
		}
		if !whole.Matches(like) {
			t.Fatalf("%+v does not fit what it is: %+v", like, whole)
		}
		part := whole
		for i, unset := range []func(){
			func() { part.IDs = nil }, func() { part.DeadBefore = time.Time{} }, func() { part.DeadAfter = time.Time{} },
			func() { part.Reasons = nil }, func() { part.MinAttempts = 0 }, func() { part.MaxAttempts = 0 },
		} {
			if rapid.Bool().Draw(t, "unset") {
				unset()
			}
			if l := letter("other"); whole.Matches(l) && !part.Matches(l) {
				t.Fatalf("after %d: %+v fits %+v, and not %+v", i, l, whole, part)
			}
		}
		if err := part.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
