package inspect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

// sealing fences and seals at the end that is there.
func sealing(t *testing.T) func(extentlog.Log, core.Extent, uint32) {
	return func(log extentlog.Log, e core.Extent, _ uint32) {
		st, err := log.Fence(e, 0)
		if err == nil {
			err = log.Seal(e.ID, st.Last, st.Checksum, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCompare(t *testing.T) {
	good := []string{"a", "b", "c", "d", "e", "f"}
	changed := []string{"a", "b", "c", "X", "e", "f"}
	for name, c := range map[string]struct {
		replicas [][]string
		sealed   []bool
		differs  string // of the last one; empty: identical
		upTo     core.Seq
	}{
		"identical":         {[][]string{good, good, good}, []bool{true, true, true}, "", 6},
		"not told yet":      {[][]string{good, append(good[:6:6], "g", "h")}, []bool{true, false}, "", 6},
		"another record":    {[][]string{good, good, changed}, []bool{true, true, false}, "batch at seq 3 is another", 6},
		"too short":         {[][]string{good, good[:4]}, []bool{true, false}, "ends at seq 4, before", 6},
		"another end":       {[][]string{good, good[:4]}, []bool{true, true}, "its end is 4", 6},
		"open, identical":   {[][]string{good, good[:2], good}, []bool{false, false, false}, "", 2},
		"open, and differs": {[][]string{good, changed}, []bool{false, false}, "batch at seq 3 is another", 6},
		"absent":            {[][]string{good, nil}, []bool{true, false}, "", 6},
	} {
		t.Run(name, func(t *testing.T) {
			id := core.ExtentID{ID: core.NewID(time.UnixMilli(1_700_000_000_000))}
			var dirs []string
			for i, messages := range c.replicas {
				dir := filepath.Join(t.TempDir(), "store")
				dirs = append(dirs, dir)
				switch {
				case messages == nil:
					fill(t, dir)
				case c.sealed[i]:
					write(t, dir, id, messages, sealing(t))
				default:
					write(t, dir, id, messages, nil)
				}
			}
			got, err := Compare(dirs, id)
			if err != nil {
				t.Fatal(err)
			}
			if got.UpTo != c.upTo {
				t.Errorf("compared up to %d, want %d", got.UpTo, c.upTo)
			}
			last := got.Replicas[len(got.Replicas)-1]
			switch err := got.Err(); {
			case c.differs == "" && err != nil:
				t.Errorf("identical replicas: %v", err)
			case c.differs != "" && (core.CodeOf(err) != core.CodeCorrupt || last.Differs == nil || !strings.Contains(last.Differs.Error(), c.differs)):
				t.Errorf("got %v, the last one %v; want %q", err, last.Differs, c.differs)
			}
			for _, r := range got.Replicas[:len(got.Replicas)-1] {
				if r.Differs != nil || r.Verified != c.upTo {
					t.Errorf("%s: %v, verified up to %d", r.Dir, r.Differs, r.Verified)
				}
			}
			if last.Absent != (c.replicas[len(c.replicas)-1] == nil) {
				t.Errorf("absent: %v", last.Absent)
			}
		})
	}
}

func TestCompare_Damaged(t *testing.T) {
	id := core.ExtentID{ID: core.NewID(time.UnixMilli(1_700_000_000_000))}
	var dirs []string
	for range 2 {
		dir := filepath.Join(t.TempDir(), "store")
		write(t, dir, id, []string{strings.Repeat("a", 5000), "b"}, sealing(t))
		dirs = append(dirs, dir)
	}
	segments, err := filepath.Glob(filepath.Join(dirs[1], "ring", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	flipped := false
	for _, name := range segments {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(b), "aaaaaaaa"); at >= 0 {
			b[at+100] ^= 1
			flipped = true
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !flipped {
		t.Fatal("the message is in none of the segments")
	}
	got, err := Compare(dirs, id)
	if err != nil {
		t.Fatal(err)
	}
	if got.Err() == nil || got.Replicas[0].Differs != nil || got.Replicas[1].Damage == nil {
		t.Fatalf("got %v, replicas %+v; want the second one damaged", got.Err(), got.Replicas)
	}
}

func TestCompare_Nowhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	fill(t, dir)
	if _, err := Compare([]string{dir}, core.ExtentID{ID: core.ID{1}}); !errors.Is(err, core.ErrNotFound) {
		t.Fatalf("an extent that nobody has: %v, want not found", err)
	}
	if _, err := Compare([]string{dir, dir}, core.ExtentID{ID: core.ID{1}}); core.CodeOf(err) != core.CodeLocked {
		t.Fatalf("the same directory twice: %v, want locked", err)
	}
}
