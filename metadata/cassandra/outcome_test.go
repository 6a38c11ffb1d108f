package cassandra

import (
	"testing"

	"github.com/columbamq/columba/core"
)

func TestJudgeInsert(t *testing.T) {
	live := func(version int64, created string, again bool) state {
		return state{version: version, live: true, created: created, attempt: created, again: again}
	}
	marker := func(version int64, created string, again bool) state {
		return state{version: version, created: created, attempt: "deleter", again: again}
	}
	for name, test := range map[string]struct {
		found state
		base  int64
		lost  bool
		want  verdict
		code  core.Code
	}{
		"our own row":                                 {live(7, "mine", false), 0, true, done, ""},
		"our own row, changed since":                  {state{version: 9, live: true, created: "mine", attempt: "other"}, 0, true, done, ""},
		"our own row, deleted since":                  {marker(8, "mine", false), 0, true, done, ""},
		"our own row, of a transaction done twice":    {live(7, "mine", true), 5, false, done, ""},
		"another's row":                               {live(7, "other", false), 0, false, refused, core.CodeExists},
		"another's row in its first life, lost":       {live(7, "other", false), 0, true, refused, core.CodeExists},
		"another's row in a later life, lost":         {live(7, "other", true), 0, true, unsure, core.CodeUnknown},
		"another's row over our marker":               {live(7, "other", true), 5, false, refused, core.CodeExists},
		"another's row over our marker, lost":         {live(7, "other", true), 5, true, unsure, core.CodeUnknown},
		"a marker":                                    {marker(8, "other", true), 0, false, over, ""},
		"a marker of the first life, lost":            {marker(8, "other", false), 0, true, over, ""},
		"a marker of a later life, lost":              {marker(8, "other", true), 0, true, unsure, core.CodeUnknown},
		"our marker, lost":                            {marker(5, "other", false), 5, true, retry, ""},
		"another marker than ours":                    {marker(9, "other", true), 5, false, over, ""},
		"another marker than ours, lost":              {marker(9, "other", true), 5, true, unsure, core.CodeUnknown},
		"another's row in a later life, but older":    {live(6, "other", true), 0, true, refused, core.CodeExists},
		"another's row over our marker, but older":    {live(6, "other", true), 5, true, refused, core.CodeExists},
		"a marker of a later life, but older":         {marker(6, "other", true), 0, true, over, ""},
		"nothing, lost":                               {state{}, 0, true, retry, ""},
		"nothing where a marker was that expired":     {state{}, 5, false, retry, ""},
		"nothing where a marker was, and answer lost": {state{}, 5, true, retry, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if v, code := judgeInsert(test.found, test.base, 7, "mine", test.lost); v != test.want || code != test.code {
				t.Errorf("got %d %q, want %d %q", v, code, test.want, test.code)
			}
		})
	}
}

func TestJudgeChange(t *testing.T) {
	const old = 5
	row := func(version int64, live bool, attempt string) state {
		return state{version: version, live: live, created: "creator", attempt: attempt}
	}
	if v, code := judgeChange(row(old, true, "other"), 0, "mine", true); v != refused || code != core.CodeConflict {
		t.Errorf("lost update at version 0: got %d %q, want a conflict", v, code)
	}
	for name, test := range map[string]struct {
		found state
		lost  bool
		want  verdict
		code  core.Code
	}{
		"our own change":                     {row(old+1, true, "mine"), true, done, ""},
		"our own deletion":                   {row(old+1, false, "mine"), true, done, ""},
		"not yet":                            {row(old, true, "creator"), true, retry, ""},
		"another's change":                   {row(old+1, true, "other"), true, refused, core.CodeConflict},
		"another's deletion":                 {row(old+1, false, "other"), true, refused, core.CodeNotFound},
		"changes after it":                   {row(old+2, true, "other"), true, unsure, core.CodeUnknown},
		"a deletion after it":                {row(old+2, false, "other"), true, unsure, core.CodeUnknown},
		"changes after it, answer not lost":  {row(old+2, true, "other"), false, refused, core.CodeConflict},
		"a deletion, answer not lost":        {row(old+2, false, "other"), false, refused, core.CodeNotFound},
		"a version that was never, lost":     {row(old-2, true, "other"), true, refused, core.CodeConflict},
		"a version that was never":           {row(old-2, true, "other"), false, refused, core.CodeConflict},
		"no row":                             {state{}, false, refused, core.CodeNotFound},
		"no row, and no marker of one, lost": {state{}, true, refused, core.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if v, code := judgeChange(test.found, old, "mine", test.lost); v != test.want || code != test.code {
				t.Errorf("got %d %q, want %d %q", v, code, test.want, test.code)
			}
		})
	}
}
