package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// TestVerifyExtent: a replica on a disk that returned wrong bytes is quarantined by the command, and comes back by it
// once the disk returns the right ones.
func TestVerifyExtent(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/demo/a")
	s.Must("", "create", "group", "/demo/a", "g")
	s.Must(strings.Repeat(strings.Repeat("x", 1000)+"\n", 300), "publish", "/demo/a")
	type extent struct{ Extent string }
	id := process.Decode[extent](t, s.Must("", "list", "extents", "/demo/a", "-o", "json"))[0].Extent
	s.Must("", "seal", "/demo/a", id)
	type verified struct {
		Store, Outcome, Reason string
		Bytes                  int
	}
	verify := func(outcome string, code int) verified {
		t.Helper()
		r := s.Run("", "verify", "extent", id, "-o", "json")
		got := process.Decode[verified](t, r.Stdout)
		if r.Code != code || len(got) != 1 || got[0].Outcome != outcome {
			t.Fatalf("verify: code %d, %s%s; want one replica, %s, and code %d", r.Code, r.Stdout, r.Stderr, outcome, code)
		}
		return got[0]
	}
	if v := verify("sound", 0); v.Bytes < 300_000 || v.Store == "" {
		t.Errorf("%+v, want that all was read", v)
	}
	s.Stop()
	mend := flip(t, filepath.Join(s.Data, "store"))
	s.Start()
	if v := verify("damaged", 1); v.Reason == "" {
		t.Errorf("%+v, want a reason", v)
	}
	s.Stop()
	mend()
	s.Start()
	verify("lifted", 0)
	verify("sound", 0)
	if lines := strings.Count(s.Must("", "consume", "/demo/a", "g", "--count", "300"), "\n"); lines != 300 {
		t.Errorf("%d messages are read, want 300", lines)
	}
	if audit := s.Must("", "list", "audit", id); strings.Count(audit, "verify extent") != 4 {
		t.Errorf("the audit says\n%s", audit)
	}
}

// flip changes a byte of a message in the log below dir; mend takes that back.
func flip(t *testing.T, dir string) (mend func()) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "ring", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	name, at := "", -1
	for _, segment := range segments {
		b, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(b, bytes.Repeat([]byte("x"), 1000)); i >= 0 {
			name, at = segment, i+100
			break
		}
	}
	if at < 0 {
		t.Fatalf("no message in %v", segments)
	}
	change := func() {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[at] ^= 1
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	change()
	return change
}
