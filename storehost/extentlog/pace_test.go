package extentlog

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const mib = 1 << 20
	p := newPace(28 * mib)
	for _, c := range []struct {
		what  string
		bytes int
		took  time.Duration
		want  int
	}{
		{"the first", 0, 0, 4 * mib},
		{"small and fast: says nothing", 64 << 10, time.Millisecond, 4 * mib},
		{"large and fast: twice as much", 4 * mib, 20 * time.Millisecond, 8 * mib},
		{"large and fast", 8 * mib, 40 * time.Millisecond, 16 * mib},
		{"large and fast: the most", 16 * mib, 80 * time.Millisecond, 28 * mib},
		{"a slow disk", 28 * mib, 5600 * time.Millisecond, 2.5 * mib},
		{"at the pace", 2.5 * mib, 500 * time.Millisecond, 2.5 * mib},
		{"a stall: the least", 100, 4 * time.Second, mib},
		{"well again", mib, 5 * time.Millisecond, 2 * mib},
	} {
		p.settled(c.bytes, c.took)
		if p.now != c.want {
			t.Fatalf("%s: %d bytes, want %d", c.what, p.now, c.want)
		}
	}
	if p = newPace(mib / 2); p.now != mib/2 {
		t.Fatalf("a small disk: %d", p.now)
	}
	p.settled(mib/2, time.Minute)
	if p.now != mib/2 {
		t.Fatalf("a small, slow disk: %d", p.now)
	}
}
