package metadata

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

func drawPut(t *rapid.T) Cell {
	at := time.UnixMicro(rapid.Int64Range(1, 4).Draw(t, "at"))
	now := time.UnixMicro(rapid.Int64Range(1, 1000).Draw(t, "now"))
	if rapid.Bool().Draw(t, "remove") {
		return Removal(at, now)
	}
	ttl := time.Duration(rapid.IntRange(0, 3).Draw(t, "ttl")) * time.Second
	return Put(rapid.SliceOfN(rapid.Byte(), 0, 2).Draw(t, "value"), at, ttl, now)
}

// In whatever order the puts of a row arrive, the same one stays.
func TestCell_PutsCommute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.SliceOfN(rapid.Custom(drawPut), 1, 6).Draw(t, "cells")
		stays := func() (last Cell) {
			for _, c := range cells {
				if c.Wins(last) {
					last = c
				}
			}
			last.Expires = 0 // puts that are equal but for their ttl are one
			return last
		}
		want := stays()
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		if diff := cmp.Diff(want, stays(), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("another order (-want +got):\n%s", diff)
		}
	})
}

func TestCell_Encoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawPut(t)
		if rapid.Bool().Draw(t, "cas") {
			want = Cell{Value: want.Value, Version: Version(rapid.Uint64Min(1).Draw(t, "version")), Expires: rapid.Int64Min(0).Draw(t, "expires")}
		}
		got, err := DecodeCell(want.Append([]byte("x"))[1:])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decoded (-want +got):\n%s", diff)
		}
	})
}

func FuzzDecodeCell(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{cellCAS, 0})
	f.Add(Cell{Version: 300, Value: []byte("v")}.Append(nil))
	f.Add([]byte{cellEnds, 1, 0})
	f.Add(Cell{Version: 300, Expires: 7, Value: []byte("v")}.Append(nil))
	f.Add(Put([]byte("v"), time.Unix(1, 0), time.Second, time.Unix(2, 0)).Append(nil))
	f.Add(Removal(time.Unix(1, 0), time.Unix(2, 0)).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCell(b)
		if err != nil {
			return
		}
		again, err := DecodeCell(c.Append(nil))
		if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("decoded again: %v\n%s", err, diff)
		}
	})
}

// TestCell_RowsThatEnd: after its end a CAS row is as if it was deleted, and a row that is inserted then has a higher
// version. An update without a time to live takes the end back.
func TestCell_RowsThatEnd(t *testing.T) {
	k, now := Key{"id", "a"}, time.Unix(100, 0)
	c, err := Cell{}.Inserted(Seals, k, nil, 7, now)
	if err == nil {
		c, err = c.Updated(Seals, k, 7, nil, time.Minute, now)
	}
	if err != nil || c.Version != 8 {
		t.Fatalf("%+v, %v", c, err)
	}
	before, after := now.Add(time.Minute-time.Microsecond), now.Add(time.Minute)
	if kept, err := c.Updated(Seals, k, 8, nil, 0, before); err != nil || !kept.Live(after.Add(1000*time.Hour)) {
		t.Errorf("updated for ever: %+v, %v", kept, err)
	}
	if _, err := c.Inserted(Seals, k, nil, 9, before); core.CodeOf(err) != core.CodeExists {
		t.Errorf("inserted before the end: %v", err)
	}
	if _, err := c.Updated(Seals, k, 8, nil, 0, after); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("updated after the end: %v", err)
	}
	if _, err := c.Deleted(Seals, k, 8, after); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("deleted after the end: %v", err)
	}
	if again, err := c.Inserted(Seals, k, nil, 3, after); err != nil || again.Version <= 8 || again.Expires != 0 {
		t.Errorf("inserted after the end: %+v, %v", again, err)
	}
}

func TestCell_Live(t *testing.T) {
	now := time.Unix(100, 0)
	for name, test := range map[string]struct {
		cell Cell
		live bool
	}{
		"none":                     {Cell{}, false},
		"cas":                      {Cell{Version: 1}, true},
		"cas that ends":            {Cell{Version: 1, Expires: now.UnixMicro() + 1}, true},
		"cas that has ended":       {Cell{Version: 1, Expires: now.UnixMicro()}, false},
		"put":                      {Put(nil, now, 0, now), true},
		"expires":                  {Put(nil, now, time.Microsecond, now), true},
		"expired":                  {Put(nil, now, time.Second, now.Add(-time.Second)), false},
		"removed":                  {Removal(now, now), false},
		"removed by a clock ahead": {Removal(now, now.Add(time.Hour)), false},
	} {
		if got := test.cell.Live(now); got != test.live {
			t.Errorf("%s: live is %v", name, got)
		}
	}
}
